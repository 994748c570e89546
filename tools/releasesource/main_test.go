package main

import (
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The archive from which the test of upgrades builds a release must equal that release. The test
// checks nothing if git does not have the release, as in a clone without history.
func TestArchiveIsTheRelease(t *testing.T) {
	const dir = "../../e2e/testdata"
	archives, err := filepath.Glob(filepath.Join(dir, archiveName("*")))
	if err != nil || len(archives) != 1 {
		t.Fatalf("%q, %v: want one archive; make release-source REF=<the newest release> writes it", archives, err)
	}
	data, err := os.ReadFile(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	got, err := untar(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(archiveName("*"), "*")
	ref := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archives[0]), before), after)
	if _, err := output("", "git", "rev-parse", "--verify", "--quiet", ref+"^{commit}"); err != nil {
		t.Logf("git does not have %s here, so %d files were compared with nothing", ref, len(got))
		return
	}
	want, err := sourceOf(ref)
	if err != nil {
		t.Fatal(err)
	}
	texts := func(files []file) map[string]string {
		all := map[string]string{}
		for _, f := range files {
			all[f.name] = string(f.text)
		}
		return all
	}
	if has, is := texts(got), texts(want); !maps.Equal(has, is) {
		differ := slices.DeleteFunc(slices.Sorted(maps.Keys(is)), func(name string) bool { return has[name] == is[name] })
		t.Errorf("%s has %d files, %s has %d; other or not there: %v. make release-source REF=%s writes it anew", archives[0], len(got), ref, len(want), differ, ref)
	}
}

// The archive has no file that a build does not read.
func TestOnlyWhatIsBuilt(t *testing.T) {
	packages := []string{"fmt", module + "/cmd/chubbyd", module + "/api"}
	for name, want := range map[string]bool{
		"go.mod": true, "go.sum": true, "LICENSE": true, "api/api.go": true, "cmd/chubbyd/listen_linux.go": true,
		"api/api_test.go": false, "doc.go": false, "api/chubbypb/chubby.pb.go": false, "cmd/chubbyd/testdata/chubbyd.yaml": false, "bench/go.mod": false,
	} {
		if isNeeded(name, packages) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
}
