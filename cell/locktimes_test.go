package cell

import (
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A lock counts where the longest path is that it is at or below.
func TestLockTimesOfPrefixes(t *testing.T) {
	l := newLockTimes([]string{"/ls/main/a", "/ls/local/a/deep", "/ls/main/b"})
	for name, want := range map[api.Name]api.Name{
		"/a": "/a", "/a/x": "/a", "/a/deep": "/a/deep", "/a/deep/x": "/a/deep", "/a/deeper": "/a", "/ab": "", "/b/a": "/b", "/c": "", "": "",
	} {
		if got := l.of(name).name; got != want {
			t.Errorf("%q counts at %q, want %q", name, got, want)
		}
	}
	if got := newLockTimes([]string{"/ls/main"}).of("/a").name; got != "" {
		t.Errorf("below the root: %q", got)
	}
}

func TestMetricPrefixesAreChecked(t *testing.T) {
	many := make([]string, MaxMetricPrefixes+1)
	for i := range many {
		many[i] = "/ls/main/" + strings.Repeat("x", i+1)
	}
	for want, prefixes := range map[string][]string{
		"at most 32": many, "another cell": {"/ls/other/a"}, "begins with": {"a"}, "twice": {"/ls/main/a", "/ls/local/a"},
	} {
		var faults []string
		Config{Cell: "main", MetricPrefixes: prefixes}.checkMetricPrefixes(func(format string, _ ...any) { faults = append(faults, format) })
		if len(faults) != 1 {
			t.Errorf("%q: %d faults, want one about %q", prefixes, len(faults), want)
		}
	}
	Config{Cell: "main", MetricPrefixes: many[1:]}.checkMetricPrefixes(func(format string, args ...any) { t.Errorf(format, args...) })
}
