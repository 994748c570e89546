package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Help and versions that cannot be written are a failure: cobra writes them without an error.
func TestHelpOnAFullDisk(t *testing.T) {
	for _, args := range []string{"help", "help serve", "--version", "version", "config example"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		var said bytes.Buffer
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Stdout, cmd.Stderr = full, &said
		cmd.Env = append(os.Environ(), playReplica+"=no", "GORACE=atexit_sleep_ms=0")
		_ = cmd.Run() // its exit code is looked at
		if got := cmd.ProcessState.ExitCode(); got != exitFailed || strings.Count(said.String(), "no space left on device") != 1 {
			t.Errorf("chubbyd %s ended with %d, and said %q", args, got, said.String())
		}
	}
}
