package promsd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/promsd"
)

// A configuration that is wrong is refused, with an error that names the field.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink("elsewhere.json", file("link.json")); err != nil {
		t.Fatal(err)
	}
	good := promsd.Job{Name: "web", Path: svc, File: file("web.json"), Labels: map[string]string{"__scheme__": "https", "env": "x"}}
	with := func(edit func(*promsd.Job)) []promsd.Job {
		j := good
		edit(&j)
		return []promsd.Job{j}
	}
	label := func(name, value string) []promsd.Job {
		return with(func(j *promsd.Job) { j.Labels = map[string]string{name: value} })
	}
	for _, c := range []struct {
		field string
		jobs  []promsd.Job
	}{
		{"", []promsd.Job{good, {Name: "other", Path: svc}, {Name: "third", Path: svc}}},
		{"Jobs has 0", nil},
		{"Jobs has 1001", make([]promsd.Job, promsd.MaxJobs+1)},
		{"Jobs[0].Name", with(func(j *promsd.Job) { j.Name = "" })},
		{"Jobs[0].Name", with(func(j *promsd.Job) { j.Name = "a/b" })},
		{"Jobs[0].Name", with(func(j *promsd.Job) { j.Name = strings.Repeat("a", 65) })},
		{"Jobs[1].Name", []promsd.Job{{Name: "a", Path: svc}, {Name: "a", Path: svc}}},
		{"Jobs[0].Path", with(func(j *promsd.Job) { j.Path = "/etc" })},
		{"Jobs[0].File", with(func(j *promsd.Job) { j.File = file("web.txt") })},
		{"Jobs[0].File", with(func(j *promsd.Job) { j.File = file(".json") })},
		{"Jobs[0].File", with(func(j *promsd.Job) { j.File = file("*.json") })},
		{"Jobs[0].File", with(func(j *promsd.Job) { j.File = file("nowhere/web.json") })},
		{"Jobs[0].File", with(func(j *promsd.Job) { j.File = file("link.json") })},
		{"Jobs[1].File", []promsd.Job{good, {Name: "b", Path: svc, File: dir + "/./web.json"}}},
		{`Jobs[0].Labels["a-b"]`, label("a-b", "x")},
		{`Jobs[0].Labels["1a"]`, label("1a", "x")},
		{`Jobs[0].Labels["__address__"]`, label("__address__", "x")},
		{`Jobs[0].Labels["__meta_chubby_name"]`, label("__meta_chubby_name", "x")},
		{`Jobs[0].Labels["a"]`, label("a", "\xff")},
	} {
		_, err := promsd.New(promsd.Config{Sessions: client.Config{}, Jobs: c.jobs})
		switch {
		case c.field == "" && err != nil:
			t.Error(err)
		case c.field != "" && (api.CodeOf(err) != api.InvalidArgument || !strings.Contains(err.Error(), c.field+" ") && !strings.Contains(err.Error(), c.field)):
			t.Errorf("%s: %v", c.field, err)
		}
	}
	if _, err := promsd.New(promsd.Config{Jobs: []promsd.Job{good}}); err == nil || !strings.Contains(err.Error(), "Sessions") {
		t.Error(err)
	}
}
