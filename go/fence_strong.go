//go:build linux && (amd64 || 386)

package bellwire

// barrier orders loads before loads and stores before stores, which these processors do by themselves. Where a store
// has to come before a load, the store is one of sync/atomic, and a full barrier here.
func barrier() {}
