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

interface Description {
  readonly messages: Readonly<Record<string, readonly Field[]>>;
  readonly methods: readonly string[];
}

const MESSAGES: Description['messages'] = {
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

const SERVICE = 'RuntimeService';
const METHODS = ['ListPodSandbox', 'PodSandboxStatus'] as const;
const STATE = 'PodSandboxState';
const STATES = ['SANDBOX_READY', 'SANDBOX_NOTREADY'] as const;

/** As they come from the wire, where a field that is missing has its zero value. */
export interface PodSandbox {
  readonly id: string;
  readonly metadata?: { readonly name: string; readonly namespace: string };
}

export interface PodSandboxStatusResponse {
  readonly status?: { readonly network?: { readonly ip: string; readonly additionalIps: readonly { ip: string }[] } };
}

/** The part of the service `RuntimeService` that is asked; `more`: what tests ask. */
export function runtimeService(more: Partial<Description> = {}): DescService {
  const messages = { ...MESSAGES, ...more.messages };
  const methods = [...METHODS, ...(more.methods ?? [])];
  const file = {
    name: 'api.proto',
    package: PACKAGE,
    syntax: 'proto3',
    messageType: Object.entries(messages).map(([name, fields]) => ({ name, field: fields.map(describe) })),
    enumType: [{ name: STATE, value: STATES.map((name, number) => ({ name, number })) }],
    service: [{ name: SERVICE, method: methods.map(method) }],
  };
  const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }));
  const service = registry.getService(`${PACKAGE}.${SERVICE}`);
  if (service === undefined) throw new Error('the description of the container runtime lacks its service');
  return service;
}

function method(name: string) {
  return { name, inputType: typeName(`${name}Request`), outputType: typeName(`${name}Response`) };
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
