package promsd

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// MaxJobs is how many Jobs a Discovery may have.
const MaxJobs = 1000

// Config is the configuration of a Discovery.
type Config struct {
	// Sessions is where the sessions with the cell come from: a *client.Keeper, one session for all
	// Jobs, which stays the caller's; or a client.Config, for a session for each Job.
	Sessions client.Sessions
	// Jobs are the lists, 1 to MaxJobs.
	Jobs []Job
	// Logger logs what a person should know: a list that is out of date, and a file that cannot be
	// written. nil logs nothing.
	Logger *slog.Logger
}

// Job is one list of targets.
type Job struct {
	// Name names the list in metrics, in the log, and in the URL /sd/NAME: 1 to 64 letters, digits,
	// "_" and "-" of ASCII. No two Jobs have the same.
	Name string `json:"name"`
	// Path is the directory whose members are the targets. It need not exist yet.
	Path string `json:"path"`
	// File is the file for file_sd_configs; empty is none. It ends in .json, its directory exists, and
	// no two Jobs have the same.
	File string `json:"file,omitempty"`
	// Services says that the targets are the endpoints of the service Path, as recipe.Lookup has
	// them, and not only the members of a directory.
	Services bool `json:"services,omitempty"`
	// Labels are added to each target; __scheme__ and __metrics_path__ are allowed, __address__ and
	// names that begin with __meta_chubby_ are not.
	Labels map[string]string `json:"labels,omitempty"`
}

// isJobName reports whether a Job may have that name.
func isJobName(name string) bool {
	return name != "" && len(name) <= 64 && labelKey(strings.ReplaceAll(name, "-", "_")) == strings.ReplaceAll(name, "-", "_")
}

// isLabelName reports whether a label may have that name.
func isLabelName(name string) bool {
	return name != "" && labelKey(name) == name && (name[0] < '0' || name[0] > '9')
}

// check returns everything that is wrong with the configuration. Each error is InvalidArgument and
// begins with the field.
func (c Config) check() error {
	var faults []error
	if c.Sessions == nil {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Sessions is nil; want a *client.Keeper or a client.Config"))
	}
	if len(c.Jobs) == 0 || len(c.Jobs) > MaxJobs {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Jobs has %d entries; want 1 to %d", len(c.Jobs), MaxJobs))
	}
	names, files := map[string]int{}, map[string]int{}
	for i, j := range c.Jobs {
		wrong := func(field, format string, args ...any) {
			faults = append(faults, api.Errorf(api.InvalidArgument, "Jobs[%d].%s %s", i, field, fmt.Sprintf(format, args...)))
		}
		if first, taken := names[j.Name]; taken {
			wrong("Name", "is %q, as that of Jobs[%d] is", j.Name, first)
		}
		names[j.Name] = i
		j.check(wrong)
		if j.File == "" {
			continue
		}
		file := absolute(j.File)
		if first, taken := files[file]; taken {
			wrong("File", "is %q, as that of Jobs[%d] is; a file is written by one Job", j.File, first)
		}
		files[file] = i
	}
	return errors.Join(faults...)
}

func (j Job) check(wrong func(field, format string, args ...any)) {
	if !isJobName(j.Name) {
		wrong("Name", `is %q; want 1 to 64 letters, digits, "_" and "-"`, j.Name)
	}
	if _, err := api.ParsePath(j.Path); err != nil {
		wrong("Path", "is %q: %v", j.Path, err)
	}
	if j.File != "" {
		j.checkFile(wrong)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Labels)) {
		field := fmt.Sprintf("Labels[%q]", name)
		switch {
		case !isLabelName(name):
			wrong(field, `is no name of a label; want letters, digits and "_", not a digit first`)
		case name == "__address__" || strings.HasPrefix(name, metaPrefix):
			wrong(field, "is set for each target; take another name")
		case !printable(j.Labels[name]):
			wrong(field, "is %q; want UTF-8 without control characters", j.Labels[name])
		}
	}
}

// checkFile checks what Prometheus asks of a file's name, and that there may be such a file.
func (j Job) checkFile(wrong func(field, format string, args ...any)) {
	if base := filepath.Base(j.File); !strings.HasSuffix(base, ".json") || base == ".json" || strings.ContainsAny(j.File, "*?[\x00") {
		wrong("File", `is %q; want a name that ends in .json, without "*", "?" and "["`, j.File)
		return
	}
	dir := filepath.Dir(j.File)
	if info, err := os.Stat(dir); err != nil {
		wrong("File", "is %q, and its directory cannot be used: %v", j.File, err)
	} else if !info.IsDir() {
		wrong("File", "is %q, and %q is no directory", j.File, dir)
	}
	if info, err := os.Lstat(j.File); err == nil && !info.Mode().IsRegular() {
		wrong("File", "is %q, which is no regular file", j.File)
	}
}

// absolute returns a path by which two names of one file are compared.
func absolute(file string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		file = filepath.Join(dir, filepath.Base(file))
	}
	if whole, err := filepath.Abs(file); err == nil {
		return whole
	}
	return filepath.Clean(file)
}
