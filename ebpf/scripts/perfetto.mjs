// Opens a trace with Perfetto's own trace processor, as its page in a browser does, and prints the rows of queries, one
// JSON object a line:
//   node ebpf/scripts/perfetto.mjs DIRECTORY TRACE SQL...
// DIRECTORY has the built page of Perfetto: `engine_bundle.js` and `trace_processor.wasm`.
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import vm from 'node:vm';

const [directory, trace, ...queries] = process.argv.slice(2);

// The bundle is a worker's, which reads its program with a synchronous request.
class XMLHttpRequest {
  open(_method, url) { this.path = join(directory, basename(url)); }
  send() {
    const bytes = readFileSync(this.path);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  }
}

const complaints = [];
const fail = (error) => {
  console.error(complaints.join('\n'), error.message);
  process.exit(1);
};
process.on('uncaughtException', fail);
const complain = (...words) => complaints.push(words.join(' '));
const scope = {
  TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, XMLHttpRequest,
  WorkerGlobalScope: Object, location: { href: 'file:///' },
  console: { log: complain, warn: complain, error: complain, debug: complain, info: complain },
};
scope.self = scope;
vm.createContext(scope);
vm.runInContext(readFileSync(join(directory, 'engine_bundle.js'), 'utf8'), scope);
// It accepts nothing but those of its own context.
const Bytes = vm.runInContext('Uint8Array', scope);

// Protocol buffers: numbers, and bytes with their length.
const varint = (value) => {
  const bytes = [];
  for (let left = BigInt(value); ; left >>= 7n) {
    if (left < 128n) return Buffer.from([...bytes, Number(left)]);
    bytes.push(Number(left & 127n) | 128);
  }
};
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

class Reader {
  constructor(of) { this.of = Buffer.from(of); this.at = 0; }
  get left() { return this.at < this.of.length; }
  varint() {
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = this.of[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  }
  take(length) { return this.of.subarray(this.at, (this.at += length)); }
  // The fields, by number; each is a list.
  fields() {
    const found = {};
    while (this.left) {
      const key = Number(this.varint());
      const value = { 0: () => this.varint(), 1: () => this.take(8), 2: () => this.take(Number(this.varint())),
        5: () => this.take(4) }[key & 7]();
      (found[key >> 3] ??= []).push(value);
    }
    return found;
  }
}
const fields = (of) => new Reader(of).fields();

// Numbers of `TraceProcessorRpc`: requests are 1 (data), 2 (end of the data) and 3 (a query).
let replies = [];
const port = {
  onmessage: null,
  postMessage(data) {
    for (const message of fields(data)[1] ?? []) replies.push(fields(message));
  },
};
let sequence = 0;
const ask = (method, args = Buffer.alloc(0)) => {
  replies = [];
  const message = Buffer.concat([number(1, sequence++), number(2, method), args]);
  port.onmessage({ data: Bytes.from(bytes(1, message)) });
  for (const reply of replies) if (reply[5]) throw new Error(String(reply[5][0]));
  return replies;
};

const rows = (sql) => {
  const found = [];
  let names = [];
  for (const reply of ask(3, bytes(103, bytes(1, Buffer.from(sql))))) {
    const result = fields(reply[203][0]);
    if (result[2]) throw new Error(`${sql}: ${result[2][0]}`);
    if (result[1]) names = result[1].map(String);
    for (const batch of (result[3] ?? []).map(fields)) {
      const integers = new Reader(Buffer.concat(batch[2] ?? []));
      const floats = new Reader(Buffer.concat(batch[3] ?? []));
      const texts = Buffer.concat(batch[5] ?? []).toString().split('\0');
      const kinds = new Reader(Buffer.concat(batch[1] ?? []));
      for (let row = []; kinds.left; ) {
        const kind = Number(kinds.varint());
        row.push({ 2: () => Number(integers.varint()), 3: () => floats.take(8).readDoubleLE(), 4: () => texts.shift() }[kind]?.()
          ?? null);
        if (row.length === names.length) {
          found.push(Object.fromEntries(row.map((value, at) => [names[at], value])));
          row = [];
        }
      }
    }
  }
  return found;
};

const run = () => {
  const parsed = ask(1, bytes(101, readFileSync(trace)));
  for (const reply of parsed) {
    const failed = reply[201] && fields(reply[201][0])[2];
    if (failed) throw new Error(`${trace}: ${failed[0]}`);
  }
  ask(2);
  for (const sql of queries) for (const row of rows(sql)) console.log(JSON.stringify(row));
};

scope.onmessage({ data: port });
// It is started by a promise.
setTimeout(run, 0);
