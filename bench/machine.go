package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// machine is what the results depend on, apart from the systems.
type machine struct {
	CPU       string        `json:"cpu"`
	CPUs      int           `json:"cpus"`
	System    string        `json:"system"`
	Go        string        `json:"go"`
	Fsync     time.Duration `json:"fsync_p50_ns"` // of 4 KiB appended to a file, the median of 200
	LoadAvg   string        `json:"load_average"` // before the first round; empty if the system does not report it
	DataUnder string        `json:"-"`
}

func lookAtMachine(dir string) (machine, error) {
	m := machine{CPU: processor(), CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), DataUnder: dir}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(release))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(load)); len(fields) >= 3 {
			m.LoadAvg = strings.Join(fields[:3], " ")
		}
	}
	var err error
	m.Fsync, err = measureFsync(dir)
	return m, err
}

func (m machine) String() string {
	text := fmt.Sprintf("%d x %s, %s, %s, append of 4 KiB and fsync %s", m.CPUs, m.CPU, m.System, m.Go, readable(m.Fsync))
	if m.LoadAvg != "" {
		text += ", load before " + m.LoadAvg
	}
	return text
}

// processor returns the name of the processor, if the system says it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unnamed processor"
}

// measureFsync measures the cost of durability on this disk: every write waits for at least that.
func measureFsync(dir string) (took time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	block := make([]byte, 4096)
	times := make([]time.Duration, 200)
	for i := range times {
		started := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times[i] = time.Since(started)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// moduleVersion returns the version of a module that this program was built
// with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version
		}
	}
	return "of unknown version"
}

// commit names the revision of a source tree, with a plus if it was changed
// since.
func commit(repo string) string {
	head, err := exec.Command("git", "-C", repo, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "of no commit"
	}
	name := strings.TrimSpace(string(head))
	if changed, err := exec.Command("git", "-C", repo, "status", "--porcelain").Output(); err == nil && len(changed) > 0 {
		name += "+"
	}
	return name
}
