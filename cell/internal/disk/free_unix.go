//go:build darwin || freebsd || linux

package disk

import "golang.org/x/sys/unix"

// Free returns the free bytes on dir's disk, -1 if unknown.
func Free(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // the types differ between systems
}
