import { create, createFileRegistry, type DescService } from '@bufbuild/protobuf';
import {
  type FieldDescriptorProto,
  FileDescriptorSetSchema,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
} from '@bufbuild/protobuf/wkt';

/*
 * What is asked of a container runtime, out of Kubernetes' own description
 * (`staging/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`), with its names and numbers. Whatever else an answer has
 * is passed over.
 */

const PACKAGE = 'runtime.v1';

type Field = readonly [name: string, number: number, type: 'string' | 'bool' | 'enum' | `message ${string}`, 'list'?];

const MESSAGES: Readonly<Record<string, readonly Field[]>> = {
  ListPodSandboxRequest: [['filter', 1, 'message PodSandboxFilter']],
  PodSandboxFilter: [['state', 2, 'message PodSandboxStateValue']],
  PodSandboxStateValue: [['state', 1, 'enum']],
  ListPodSandboxResponse: [['items', 1, 'message PodSandbox', 'list']],
  PodSandbox: [
    ['id', 1, 'string'],
    ['metadata', 2, 'message PodSandboxMetadata'],
  ],
  PodSandboxMetadata: [
    ['name', 1, 'string'],
    ['namespace', 3, 'string'],
  ],
  PodSandboxStatusRequest: [['pod_sandbox_id', 1, 'string']],
  PodSandboxStatusResponse: [['status', 1, 'message PodSandboxStatus']],
  PodSandboxStatus: [['network', 5, 'message PodSandboxNetworkStatus']],
  PodSandboxNetworkStatus: [
    ['ip', 1, 'string'],
    ['additional_ips', 2, 'message PodIP', 'list'],
  ],
  PodIP: [['ip', 1, 'string']],
};

const STATE = 'PodSandboxState';
const METHODS = ['ListPodSandbox', 'PodSandboxStatus'] as const;

/** As they come from the wire, where a field that is missing has its zero value. */
export interface PodSandbox {
  readonly id: string;
  readonly metadata?: { readonly name: string; readonly namespace: string };
}

export interface PodSandboxStatusResponse {
  readonly status?: { readonly network?: { readonly ip: string; readonly additionalIps: readonly { ip: string }[] } };
}

/** The part of the service `RuntimeService` that is asked. */
export function runtimeService(): DescService {
  const file = {
    name: 'api.proto',
    package: PACKAGE,
    syntax: 'proto3',
    messageType: Object.entries(MESSAGES).map(([name, fields]) => ({ name, field: fields.map(describe) })),
    enumType: [
      {
        name: STATE,
        value: [
          { name: 'SANDBOX_READY', number: 0 },
          { name: 'SANDBOX_NOTREADY', number: 1 },
        ],
      },
    ],
    service: [
      {
        name: 'RuntimeService',
        method: METHODS.map((name) => ({
          name,
          inputType: typeName(`${name}Request`),
          outputType: typeName(`${name}Response`),
        })),
      },
    ],
  };
  const service = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] })).getService(
    `${PACKAGE}.RuntimeService`,
  );
  if (service === undefined) throw new Error('the description of the container runtime lacks its service');
  return service;
}

const SCALARS = { string: Type.STRING, bool: Type.BOOL } as const;

function describe([name, number, type, list]: Field): Partial<Omit<FieldDescriptorProto, '$typeName'>> {
  const label = list === 'list' ? Label.REPEATED : Label.OPTIONAL;
  if (type === 'enum') return { name, number, label, type: Type.ENUM, typeName: typeName(STATE) };
  if (type === 'string' || type === 'bool') return { name, number, label, type: SCALARS[type] };
  return { name, number, label, type: Type.MESSAGE, typeName: typeName(type.slice('message '.length)) };
}

function typeName(name: string): string {
  return `.${PACKAGE}.${name}`;
}
