//go:build linux

// Package bellwire calls and serves processes of the same Linux machine through shared memory, as docs/wire.md of this
// project specifies. It is pure Go.
//
// A [Session] carries calls, pipelines, batches and one-way requests to a [Server]; a [Client] finds the service again when
// its provider was restarted. A [Publisher] gives the newest snapshot to any number of readers ([Snapshots],
// [SnapshotReader]), an [EventPublisher] every event ([Events], [Subscriber]). Nothing that a peer writes is trusted: it is
// copied, then checked, and what breaks a rule ends the session with a [Violation].
//
// It runs on Linux 5.10 and later, on amd64, arm64, arm (GOARM=7), 386 and riscv64.
package bellwire
