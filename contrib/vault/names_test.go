package chubbyvault

import (
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// keyOfFile undoes fileOf.
func keyOfFile(file string) (string, bool) {
	parts := strings.Split(file, "/")
	for i, name := range parts {
		last := i == len(parts)-1
		if rest, marked := strings.CutPrefix(name, entryMark); marked != last {
			return "", false
		} else if last {
			name = rest
		}
		part, ok := partOf(name, !last)
		if !ok {
			return "", false
		}
		parts[i] = part
	}
	return strings.Join(parts, "/"), true
}

// FuzzNames: each key has one path, which can be one unless it is too long, and each path one key.
func FuzzNames(f *testing.F) {
	for _, key := range []string{"", "a", "a/b", "/", "//", "_a/_b", "./..", "%", "%25", "%/a", "\xff/\x00", "a\u2028b/\u200b", "core/lock", "é/日本"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		file := fileOf(key)
		if back, ok := keyOfFile(file); !ok || back != key {
			t.Errorf("key %q has the path %q, of which the key is %q (%t)", key, file, back, ok)
		}
		if len(key) < 60 && strings.Count(key, "/") < 25 {
			if _, err := api.ParsePath(root + "/data/" + file); err != nil {
				t.Errorf("key %q has the path %q: %v", key, file, err)
			}
		}
		if part, ok := partOf(key, true); ok && nameOf(part, true) != key {
			t.Errorf("two paths have the key %q: %q and %q", part, key, nameOf(part, true))
		}
	})
}
