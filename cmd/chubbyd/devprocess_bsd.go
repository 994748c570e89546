//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing on this system: the end of its standard input tells a replica that its parent has
// ended.
func dieWithParent(*syscall.SysProcAttr) {}
