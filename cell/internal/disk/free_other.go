//go:build !(darwin || freebsd || linux)

package disk

// Free returns -1, unknown on this system. No replica runs here, but its data can be read.
func Free(string) int64 { return -1 }
