package main

import "syscall"

// dieWithParent has the system kill a process when the thread that started it
// has ended.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
