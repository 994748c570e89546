//go:build darwin || freebsd || linux

package disk

import "golang.org/x/sys/unix"

// Free returns the bytes that are free where dir is, -1 if that is unknown.
func Free(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // the types differ between systems
}
