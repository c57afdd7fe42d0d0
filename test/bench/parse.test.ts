import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseDnsperf, parseIperf3, parseUdpLoad, parseWrk } from '../../bench/parse.ts';

describe('iperf3', () => {
  test('gives what the receiver got', () => {
    const report = {
      end: {
        sum_sent: { bytes: 9, bits_per_second: 9 },
        sum_received: { bytes: 2 ** 31, bits_per_second: 12.5e9 },
      },
    };
    assert.deepEqual(parseIperf3(JSON.stringify(report)), { values: { gbits: 12.5, gibibytes: 2 }, complaints: [] });
  });

  test('that reports an error gives no figure', () => {
    const report = { end: {}, error: 'unable to connect to server: Connection refused' };
    assert.throws(() => parseIperf3(JSON.stringify(report)), /iperf3: unable to connect/);
  });

  test('without the sum of the receiver gives no figure', () => {
    assert.throws(() => parseIperf3('{"end":{}}'), /bits_per_second of iperf3/);
  });
});

const WRK = `Running 1s test @ http://10.96.0.100/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.10ms  210.42us   5.08ms   90.55%
    Req/Sec    56.90k     1.22k   58.80k    70.00%
  Latency Distribution
     50%  950.00us
     75%    1.12ms
     90%    1.30ms
     99%    1.94ms
  62312 requests in 1.10s, 17.71MB read
Requests/sec:  56648.71
Transfer/sec:     16.10MB
`;

describe('wrk', () => {
  test('gives requests per second, and percentiles in microseconds whatever their unit', () => {
    assert.deepEqual(parseWrk(WRK), { values: { perSecond: 56648.71, p50: 950, p99: 1940 }, complaints: [] });
    assert.equal(parseWrk(WRK.replace('1.94ms', '1.20s')).values['p99'], 1_200_000);
  });

  test('complains of broken connections and of responses that are errors', () => {
    const troubled = WRK.replace(
      'Requests/sec',
      '  Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 17\nRequests/sec',
    );
    assert.deepEqual(parseWrk(troubled).complaints, [
      'socket errors: connect 0, read 3, write 0, timeout 1',
      '17 responses that are errors',
    ]);
  });

  test('that could not connect gives no figure', () => {
    assert.throws(() => parseWrk('unable to connect to 10.96.0.100:http Connection refused\n'), /Requests\/sec of wrk/);
  });
});

const DNSPERF = `[Status] Testing complete (time limit)

Statistics:

  Queries sent:         90244
  Queries completed:    90244 (100.00%)
  Queries lost:         0 (0.00%)

  Response codes:       NOERROR 90244 (100.00%)
  Average packet size:  request 32, response 73
  Run time (s):         1.000722
  Queries per second:   90178.890841
`;

describe('dnsperf', () => {
  test('gives queries per second', () => {
    assert.deepEqual(parseDnsperf(DNSPERF), { values: { perSecond: 90178.890841 }, complaints: [] });
  });

  test('complains of lost queries and of answers that are errors', () => {
    const troubled = DNSPERF.replace('lost:         0 (0.00%)', 'lost:         64 (0.07%)').replace(
      'NOERROR 90244 (100.00%)',
      'NOERROR 90000 (99.73%), REFUSED 244 (0.27%)',
    );
    assert.deepEqual(parseDnsperf(troubled).complaints, [
      '64 queries lost',
      'response codes: NOERROR 90000 (99.73%), REFUSED 244 (0.27%)',
    ]);
  });

  test('without any answer complains too', () => {
    const silent = DNSPERF.replace(/ {2}Response codes.*\n/, '').replace('90178.890841', '0.000000');
    assert.deepEqual(parseDnsperf(silent), { values: { perSecond: 0 }, complaints: ['response codes: no response'] });
  });
});

describe('udp-load', () => {
  test('gives queries per second', () => {
    const line = '{"perSecond":129000.5,"lost":0,"strange":0}\n';
    assert.deepEqual(parseUdpLoad(line), { values: { perSecond: 129000.5 }, complaints: [] });
  });

  test('complains of what was lost and of what went astray', () => {
    assert.deepEqual(parseUdpLoad('{"perSecond":1,"lost":4,"strange":2}').complaints, [
      '4 datagrams lost',
      '2 answers of another flow',
    ]);
  });
});
