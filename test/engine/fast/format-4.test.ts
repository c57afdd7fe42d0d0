import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { Deserializer, Serializer } from 'node:v8';
import type { Parcel } from '../../../src/model/hand-over.ts';
import { close } from '../../../src/sys/descriptor.ts';
import { bindTo, SO_REUSEPORT, SOCK_DGRAM, SOL_SOCKET, setOption, socket } from '../../../src/sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../../src/sys/socket-address.ts';
import { must } from '../../../src/sys/sys-error.ts';
import { buildNetwork } from '../../compliance/data-plane/network.ts';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { all, handOverOf, sendParcels } from './pass-on.ts';
import { fastRig, openDescriptors, openPort } from './rig.ts';

before(buildNetwork);

const SHARED = { level: SOL_SOCKET, name: SO_REUSEPORT, value: 1 };

test('all clients of a UDP port that had several sockets in format 4 are heard at the one that is left', async (t) => {
  const [predecessor, successor] = [await fastRig(t), await fastRig(t)];
  const backend = await UdpBackend.named(t, 'there');
  const port = await openPort(predecessor, 'a/b', [backend.endpoint], 'UDP');
  await handOverOf(successor.plane).freeze();
  const [ports, ...others] = await all(await handOverOf(predecessor.plane).freeze());
  assert.ok(ports);
  const more = moreSockets(ports.fds[0] as number, port);
  t.after(() => more.forEach(close));
  const count = openDescriptors();
  await handOverOf(successor.plane).adopt(await sendParcels([withMoreSockets(ports, more), ...others]));
  assert.equal(openDescriptors(), count + 1, 'the listener');
  await handOverOf(predecessor.plane).release();
  handOverOf(successor.plane).thaw();
  // The predecessor, which does not read them any more, still has the others.
  const clients = await Promise.all(Array.from({ length: 30 }, () => UdpClient.connect(t, port)));
  for (const client of clients) client.send('?');
  await waitFor('all answers', () => clients.every(({ texts }) => texts.includes('there')));
});

/** As format 4 opened them. */
function moreSockets(listener: number, port: number): readonly number[] {
  must('setsockopt', setOption(listener, SHARED));
  return Array.from({ length: 3 }, () => {
    const fd = must('socket', socket(familyOfText('127.0.0.1'), SOCK_DGRAM));
    must('setsockopt', setOption(fd, SHARED));
    must('bind', bindTo(fd, encodeSocketAddress('127.0.0.1', port)));
    return fd;
  });
}

function withMoreSockets({ fds, bytes }: Parcel, more: readonly number[]): Parcel {
  const deserializer = new Deserializer(bytes);
  deserializer.readHeader();
  const { ports, records } = deserializer.readValue();
  const moreFds = more.map((_, index) => fds.length + index);
  const serializer = new Serializer();
  serializer.writeHeader();
  serializer.writeValue({ ports: [{ ...ports[0], moreFds }], records });
  return { fds: [...fds, ...more], bytes: serializer.releaseBuffer() };
}
