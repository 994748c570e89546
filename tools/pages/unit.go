package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The hosts have no systemd. This program stands for systemctl there: it reads the unit that the page installs, and honours
// what the unit says, but for the keys that keep the replica in a sandbox. A key that it does not know is an error: either the
// unit has a typing error, or it is to be added here.
const (
	unitDir    = "/etc/systemd/system"
	runDir     = "/var/lib/systemctl" // the process ids of supervisors
	journalDir = "/var/log/journal"   // what services write
)

// unit is what counts of the unit's file.
type unit map[string]string

func unitKeys() []string {
	return []string{
		"Unit.Description", "Unit.Documentation", "Unit.After", "Unit.Wants", "Unit.StartLimitIntervalSec", "Install.WantedBy", "Service.Type",
		"Service.User", "Service.Group", "Service.WorkingDirectory", "Service.EnvironmentFile", "Service.ExecStart", "Service.ExecReload",
		"Service.Restart", "Service.RestartSec", "Service.RestartPreventExitStatus", "Service.LimitNOFILE", "Service.TimeoutStopSec",
		"Service.StateDirectory", "Service.StateDirectoryMode", "Service.LogsDirectory", "Service.LogsDirectoryMode",
	}
}

// sandboxKeys are the beginnings of those that this program passes over.
func sandboxKeys() []string {
	return []string{
		"Service.CapabilityBoundingSet", "Service.LockPersonality", "Service.MemoryDenyWriteExecute", "Service.NoNewPrivileges", "Service.Private",
		"Service.Protect", "Service.RemoveIPC", "Service.Restrict", "Service.SystemCall", "Service.UMask",
	}
}

func isUnitKey(name string) bool {
	return slices.Contains(unitKeys(), name) ||
		slices.ContainsFunc(sandboxKeys(), func(begins string) bool { return strings.HasPrefix(name, begins) })
}

func parseUnit(text string) (unit, error) {
	u, section := unit{}, ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		name, value, isPair := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case !isPair || !isUnitKey(section+"."+name):
			return nil, fmt.Errorf("line %d: %s.%s is not a key that this launcher knows", i+1, section, name)
		default:
			u[section+"."+name] = value
		}
	}
	if u["Service.ExecStart"] == "" || u["Service.User"] == "" {
		return nil, errors.New("the unit says neither whom to start nor as whom")
	}
	return u, nil
}

// command returns what a line of the unit starts, as its user, in its directory and with its environment.
func (u unit) command(line string) (*exec.Cmd, error) {
	words := strings.Fields(line)
	account, uid, gid, err := u.account()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = u["Service.WorkingDirectory"]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + account.HomeDir, "USER=" + account.Username}
	if name, optional := strings.CutPrefix(u["Service.EnvironmentFile"], "-"); name != "" {
		data, err := os.ReadFile(name)
		if err != nil && !(optional && errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				cmd.Env = append(cmd.Env, line)
			}
		}
	}
	return cmd, nil
}

// account returns whom the unit starts a program as.
func (u unit) account() (account *user.User, uid, gid int, err error) {
	if account, err = user.Lookup(u["Service.User"]); err != nil {
		return nil, 0, 0, err
	}
	if uid, err = strconv.Atoi(account.Uid); err != nil {
		return nil, 0, 0, err
	}
	gid, err = strconv.Atoi(account.Gid)
	return account, uid, gid, err
}

// makeDirectories makes those that the unit names, of its user.
func (u unit) makeDirectories() error {
	_, uid, gid, err := u.account()
	if err != nil {
		return err
	}
	for kind, below := range map[string]string{"StateDirectory": "/var/lib", "LogsDirectory": "/var/log"} {
		mode, err := strconv.ParseUint(u["Service."+kind+"Mode"], 8, 32)
		if err != nil {
			return fmt.Errorf("%sMode: %w", kind, err)
		}
		for name := range strings.FieldsSeq(u["Service."+kind]) {
			dir := filepath.Join(below, name)
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, fs.FileMode(mode)), os.Chown(dir, uid, gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// systemctl does what is asked of it: [disable|enable] [--now] UNIT, and the like.
func systemctl(args []string) error {
	now := slices.Contains(args, "--now")
	args = slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "--now" })
	if len(args) == 1 && args[0] == "daemon-reload" {
		return nil
	}
	if len(args) != 2 {
		return fmt.Errorf("systemctl %s: not understood", strings.Join(args, " "))
	}
	name := args[1]
	u, err := readUnit(name)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "start", args[0] == "enable" && now:
		return start(name)
	case args[0] == "stop", args[0] == "disable" && now:
		return stop(name, u)
	case args[0] == "restart":
		if err := stop(name, u); err != nil {
			return err
		}
		return start(name)
	case args[0] == "reload":
		pid, err := pidOf(name + ".main")
		if err != nil {
			return fmt.Errorf("%s does not run: %w", name, err)
		}
		cmd, err := u.command(strings.ReplaceAll(u["Service.ExecReload"], "$MAINPID", strconv.Itoa(pid)))
		if err != nil {
			return err
		}
		return cmd.Run()
	case args[0] == "is-active":
		pid, err := pidOf(name + ".main")
		if err != nil || syscall.Kill(pid, 0) != nil {
			return fmt.Errorf("%s is inactive", name)
		}
		return nil
	}
	return fmt.Errorf("systemctl %s: not understood", strings.Join(args, " "))
}

func readUnit(name string) (unit, error) {
	file := filepath.Join(unitDir, strings.TrimSuffix(name, ".service")+".service")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput()
		if bytes.Contains(out, []byte(filepath.Base(file))) || err != nil {
			return nil, fmt.Errorf("systemd-analyze verify %s: %w\n%s", file, err, out)
		}
	}
	u, err := parseUnit(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return u, nil
}

func pidOf(name string) (int, error) {
	data, err := os.ReadFile(filepath.Join(runDir, name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(data))
}

// start has a supervisor of its own, which outlives this command.
func start(name string) error {
	if pid, err := pidOf(name); err == nil && syscall.Kill(pid, 0) == nil {
		return nil
	}
	for _, dir := range []string{runDir, journalDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	journal, err := os.OpenFile(filepath.Join(journalDir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "supervise", name)
	cmd.Stdout, cmd.Stderr = journal, journal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(runDir, name), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// stop ends a supervisor, which ends its service.
func stop(name string, u unit) error {
	pid, err := pidOf(name)
	if err != nil {
		return nil //nolint:nilerr // it was never started
	}
	patience, err := strconv.Atoi(u["Service.TimeoutStopSec"])
	if err != nil {
		return fmt.Errorf("TimeoutStopSec: %w", err)
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	for end := time.Now().Add(time.Duration(patience) * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s has not stopped in %d s", name, patience)
		}
	}
	return os.Remove(filepath.Join(runDir, name))
}

// limitFiles sets the limit of open files that the unit asks for. A container may allow fewer, which is enough here.
func limitFiles(asked string) error {
	files, err := strconv.ParseUint(asked, 10, 64)
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	files = min(files, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files})
}

// supervise runs a service until it ends and is not to be started again.
func supervise(name string) error {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	for {
		u, err := readUnit(name)
		if err != nil {
			return err
		}
		if err := u.makeDirectories(); err != nil {
			return err
		}
		cmd, err := u.command(u["Service.ExecStart"])
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := limitFiles(u["Service.LimitNOFILE"]); err != nil {
			return fmt.Errorf("LimitNOFILE: %w", err)
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		main := filepath.Join(runDir, name+".main")
		if err := os.WriteFile(main, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-stopped:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return os.Remove(main)
		case <-ended:
		}
		code := cmd.ProcessState.ExitCode()
		fmt.Printf("%s: main process exited, status=%d\n", name, code)
		if err := os.Remove(main); err != nil {
			return err
		}
		if code == 0 || u["Service.Restart"] != "on-failure" || slices.Contains(strings.Fields(u["Service.RestartPreventExitStatus"]), strconv.Itoa(code)) {
			return nil
		}
		time.Sleep(100 * time.Millisecond) // in place of RestartSec
	}
}
