//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing on this system: a replica notices by the end of its standard
// input that its parent has ended.
func dieWithParent(*syscall.SysProcAttr) {}
