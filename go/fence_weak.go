//go:build linux && (arm64 || arm || riscv64)

package bellwire

// barrier orders the loads and stores before it before those after it, plain ones too: sync/atomic orders plain
// accesses only on one side of each of its own.
func barrier()
