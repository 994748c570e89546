package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Help and versions that cannot be written are a failure: cobra writes them without an error.
func TestHelpOnAFullDisk(t *testing.T) {
	for _, args := range []string{"help", "help serve", "--version", "version", "config example"} {
		full := must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
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

// A command that prints, and whose reader has gone, ends without a word: not by a signal, of which runuser would tell.
func TestReaderThatHasGone(t *testing.T) {
	example := filepath.Join(t.TempDir(), "chubbyd.yaml")
	if text, _, err := output(t, "config", "example"); err != nil || os.WriteFile(example, []byte(text), 0o600) != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"help", "version", "config example", "config check " + example, "config show --config " + example, "completion bash", "certs --help"} {
		unread, out, err := os.Pipe()
		noErr(t, err)
		unread.Close()
		var said bytes.Buffer
		cmd := exec.Command(os.Args[0], strings.Fields(line)...)
		cmd.Stdout, cmd.Stderr = out, &said
		cmd.Env = append(os.Environ(), playReplica+"=no", "GORACE=atexit_sleep_ms=0")
		_ = cmd.Run() // its exit code is looked at
		out.Close()
		if got := cmd.ProcessState; got.ExitCode() != exitUnread || said.Len() > 0 {
			t.Errorf("chubbyd %s ended with %v, want exit code %d, and said %q", line, got, exitUnread, said.String())
		}
	}
}
