package sequencer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/sequencer"
	"pgregory.net/rapid"
)

const (
	cellA api.CellID = "00112233445566778899aabbccddeeff"
	cellB api.CellID = "ffeeddccbbaa99887766554433221100"
)

var primary = api.MustParsePath("/ls/foo/svc/primary")

func of(path api.Path, token uint64) sequencer.Sequencer {
	return sequencer.Sequencer{Cell: cellA, Path: path, Mode: api.Exclusive, Generation: api.Generation(token)}
}

// sum completes a text by its checksum, computed without the package.
func sum(head, path string) string {
	table := crc32.MakeTable(crc32.Castagnoli)
	return fmt.Sprintf("%s%08x:%s", head, crc32.Checksum([]byte(head+path), table), path)
}

// resum returns a text with a correct checksum, whatever its parts.
func resum(mode, generation, suffix string) string {
	return sum("chubby1:"+mode+":"+generation+":"+string(cellA)+":", "/ls/foo/svc"+suffix)
}

// anySequencer draws from all valid ones, with many paths that need escaping.
func anySequencer(t *rapid.T) sequencer.Sequencer {
	component := rapid.StringOfN(rapid.SampledFrom([]rune("aZ09-_.~ %:\"'\\$&;,=+#é漢😀")), 1, 12, 60).
		Filter(func(part string) bool { return part != "." && part != ".." })
	path := "/ls/" + rapid.SampledFrom([]string{"local", "foo", "eu-1.example"}).Draw(t, "cell name") +
		"/" + strings.Join(rapid.SliceOfN(component, 1, 6).Draw(t, "components"), "/")
	var proof sequencer.Proof
	copy(proof[:], rapid.SliceOfN(rapid.Byte(), 0, len(proof)).Draw(t, "proof"))
	return sequencer.Sequencer{
		Proof:      proof,
		Cell:       rapid.SampledFrom([]api.CellID{cellA, cellB}).Draw(t, "cell id"),
		Path:       api.MustParsePath(path),
		Mode:       rapid.SampledFrom([]api.LockMode{api.Exclusive, api.Shared}).Draw(t, "mode"),
		Generation: api.Generation(rapid.Uint64Range(1, api.MaxGeneration).Draw(t, "generation")),
	}
}

// The text must not change: programs of several versions exchange it, and it is
// in files and databases. The checksums come from a bitwise CRC-32C that does
// not use Go's.
func TestTextIsStable(t *testing.T) {
	proved := of(primary, 57)
	proved.Proof = sequencer.Proof{244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255}
	for text, want := range map[string]sequencer.Sequencer{
		"chubby2:x:57:00112233445566778899aabbccddeeff:9PX29_j5-vv8_f7_:21e12787:/ls/foo/svc/primary": proved,
		"chubby1:x:57:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary":                  of(primary, 57),
		"chubby1:s:9007199254740991:ffeeddccbbaa99887766554433221100:2c800b61:/ls/foo/a%20b/100%25%3A%C3%A9": {
			Cell: cellB, Path: api.MustParsePath("/ls/foo/a b/100%:é"), Mode: api.Shared, Generation: api.MaxGeneration},
	} {
		if got := want.String(); got != text {
			t.Errorf("String = %q\n   want %q", got, text)
		}
		if got, err := sequencer.Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v", text, got, err)
		}
	}
}

func TestTextRoundTripsAndNeedsNoQuoting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySequencer(t)
		text := s.String()
		if back, err := sequencer.Parse(text); err != nil || back != s {
			t.Fatalf("Parse(%q) = %+v, %v; want %+v", text, back, err, s)
		}
		if odd := strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/-._~%"); odd != "" {
			t.Fatalf("%q contains characters that are not plain, such as in %q", text, odd)
		}
		encoded := ok(json.Marshal(map[string]sequencer.Sequencer{"s": s}))(t)
		var decoded map[string]sequencer.Sequencer
		if err := json.Unmarshal(encoded, &decoded); err != nil || decoded["s"] != s {
			t.Fatalf("%s decodes to %+v, %v", encoded, decoded, err)
		}
	})
}

func TestLongestPathFits(t *testing.T) {
	long := "/" + strings.Repeat("é", 127) + "a"
	path := api.MustParsePath("/ls/f" + long + long + long + "/" + strings.Repeat("é", 125))
	if len(path.String()) != api.MaxPath {
		t.Fatalf("the path has %d bytes", len(path.String()))
	}
	s := sequencer.Sequencer{Cell: cellA, Path: path, Mode: api.Exclusive, Generation: api.MaxGeneration, Proof: sequencer.Proof{1}}
	if back, err := sequencer.Parse(s.String()); err != nil || back != s {
		t.Errorf("its text of %d bytes does not parse: %v", len(s.String()), err)
	}
}

// Damage is distinguished from staleness: a text that was cut, or in which one
// byte was changed, dropped or doubled, cannot be parsed.
func TestDamageIsNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySequencer(t)
		text := s.String()
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		damaged := map[string]string{
			"cut":     text[:at],
			"dropped": text[:at] + text[at+1:],
			"doubled": text[:at+1] + text[at:],
			"changed": text[:at] + rapid.StringMatching(`[ -~]`).Draw(t, "by") + text[at+1:],
		}
		for how, other := range damaged {
			if other == text {
				continue
			}
			if got, err := sequencer.Parse(other); !errors.Is(err, api.BadSequencer) {
				t.Fatalf("%s at %d: Parse(%q) = %+v, %v", how, at, other, got, err)
			}
		}
	})
}

func TestRefusedTextSaysWhy(t *testing.T) {
	whole := of(primary, 57).String()
	for text, want := range map[string]string{
		"":             "empty",
		"hello":        "not a sequencer of this version",
		"chubby3:x:57": "not a sequencer of this version",
		"chubby2:x:57": "truncated",
		sum("chubby2:x:57:"+string(cellA)+":AAAA:", "/ls/foo/svc"):             "malformed proof",
		sum("chubby2:x:57:"+string(cellA)+":AAAAAAAAAAAAAAAA:", "/ls/foo/svc"): "canonical",
		whole[:30]:                         "truncated",
		whole[:len(whole)-1]:               "damaged",
		whole + "\n":                       "damaged",
		resum("z", "57", ""):               "mode",
		resum("x", "0", ""):                "generation",
		resum("x", "057", ""):              "canonical",
		resum("x", "+57", ""):              "generation",
		resum("x", "57", "%4"):             "escape",
		resum("x", "57", "%41"):            "canonical", // 'A' must not be escaped
		resum("x", "57", "%c3%a9"):         "canonical",
		resum("x", "57", "/.."):            "names no lock",
		resum("x", "57", "%00"):            "names no lock",
		resum("x", "9007199254740992", ""): "generation",
	} {
		_, err := sequencer.Parse(text)
		if !errors.Is(err, api.BadSequencer) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v; want BadSequencer with %q", text, err, want)
		}
	}
}

func TestInvalidValueHasNoText(t *testing.T) {
	spoil := map[string]func(*sequencer.Sequencer){
		"cell":       func(s *sequencer.Sequencer) { s.Cell = "0011" },
		"path":       func(s *sequencer.Sequencer) { s.Path = api.Path{} },
		"mode":       func(s *sequencer.Sequencer) { s.Mode = 0 },
		"zero":       func(s *sequencer.Sequencer) { s.Generation = 0 },
		"generation": func(s *sequencer.Sequencer) { s.Generation = api.MaxGeneration + 1 },
	}
	for part, do := range spoil {
		s := of(primary, 57)
		do(&s)
		if text, err := s.MarshalText(); s.String() != "" || err == nil {
			t.Errorf("without a valid %s: %q, %q, %v", part, s.String(), text, err)
		}
	}
	kept := of(primary, 57)
	if err := kept.UnmarshalText([]byte("chubby1:")); err == nil || kept != of(primary, 57) {
		t.Errorf("UnmarshalText of damaged text: %v, left %+v", err, kept)
	}
}

// Parse accepts a text only if it is the text of the result.
func FuzzParse(f *testing.F) {
	seeds.Add(f)
	f.Add("")
	f.Add("chubby1:")
	f.Add("chubby1:x:1:::")
	f.Add(of(primary, 57).String())
	f.Add(of(api.MustParsePath("/ls/foo/a b/100%:é"), api.MaxGeneration).String())
	f.Add(resum("s", "1", "%C3%A9"))
	f.Add(resum("x", "01", "%2f"))
	f.Add(resum("x", "1", "%"))
	f.Fuzz(func(t *testing.T, text string) {
		checkParse(t, text)
		// Few mutants have a correct checksum, so each is also tried with one.
		if parts := strings.SplitN(text, ":", 6); len(parts) == 6 {
			checkParse(t, sum(parts[0]+":"+parts[1]+":"+parts[2]+":"+parts[3]+":", parts[5]))
		}
	})
}

func checkParse(t *testing.T, text string) {
	s, err := sequencer.Parse(text)
	switch {
	case err != nil && !errors.Is(err, api.BadSequencer):
		t.Fatalf("Parse(%q) fails with %v, not BadSequencer", text, err)
	case err == nil && s.String() != text:
		t.Fatalf("Parse(%q) accepts a second text of %q", text, s.String())
	case err == nil && (s.Token() == 0 || s.Token() > api.MaxGeneration || len(text) > sequencer.MaxText):
		t.Fatalf("Parse(%q) accepts %+v", text, s)
	}
}

// held is a lock with a sequencer, which counts how often it was asked.
type held struct {
	token api.Generation
	asked *int
}

func (h held) Sequencer() sequencer.Sequencer {
	*h.asked++
	return sequencer.Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/x"), Mode: api.Exclusive, Generation: h.token}
}

// The innermost lock's sequencer is found, a nil Source hides it, and the lock is asked only by those who look.
func TestFromContext(t *testing.T) {
	asked := 0
	outer := sequencer.NewContext(t.Context(), held{41, &asked})
	inner := sequencer.NewContext(outer, held{57, &asked})
	hidden := sequencer.NewContext(inner, nil)
	if asked != 0 {
		t.Errorf("the locks were asked %d times before anybody looked", asked)
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		want uint64
		ok   bool
	}{{"none", t.Context(), 0, false}, {"one", outer, 41, true}, {"two", inner, 57, true}, {"hidden", hidden, 0, false}} {
		if s, ok := sequencer.FromContext(c.ctx); ok != c.ok || s.Token() != c.want {
			t.Errorf("%s: token %d, %v; want %d, %v", c.name, s.Token(), ok, c.want, c.ok)
		}
	}
}

// memory is a Store without a disk, whose saves can be delayed or fail.
type memory struct {
	mu     sync.Mutex // guards saved
	saved  map[api.Path]sequencer.Sequencer
	before func(context.Context, sequencer.Sequencer) error // called in Save first, if set
}

func (m *memory) Load(context.Context) ([]sequencer.Sequencer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []sequencer.Sequencer
	for _, s := range m.saved {
		all = append(all, s)
	}
	return all, nil
}

func (m *memory) Save(ctx context.Context, s sequencer.Sequencer) error {
	if m.before != nil {
		if err := m.before(ctx, s); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saved == nil {
		m.saved = map[api.Path]sequencer.Sequencer{}
	}
	m.saved[s.Path] = s
	return nil
}

func newGuard(t testing.TB, config sequencer.GuardConfig) *sequencer.Guard {
	t.Helper()
	if config.Store == nil {
		config.Store = &memory{}
	}
	if len(config.Locks) == 0 && config.Prefix.IsZero() {
		config.Locks = []api.Path{primary}
	}
	return ok(sequencer.NewGuard(t.Context(), config))(t)
}

func openStore(t testing.TB, name string) *sequencer.FileStore {
	t.Helper()
	store := ok(sequencer.OpenFileStore(name))(t)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func accept(t testing.TB, guard *sequencer.Guard, s sequencer.Sequencer) {
	t.Helper()
	if got, err := guard.Check(t.Context(), s.String()); err != nil || got != s {
		t.Fatalf("Check(%s) = %+v, %v; want it accepted", s, got, err)
	}
}

// refuse checks that s is refused with that code and that the message contains
// all of want.
func refuse(t testing.TB, guard *sequencer.Guard, s sequencer.Sequencer, code api.Code, want ...string) {
	t.Helper()
	_, err := guard.Check(t.Context(), s.String())
	var told *api.Error
	if !errors.As(err, &told) || told.Code != code {
		t.Fatalf("Check(%s): %v; want %v", s, err, code)
	}
	for _, part := range want {
		if !strings.Contains(told.Message, part) {
			t.Fatalf("Check(%s) says %q; want it to hold %q", s, told.Message, part)
		}
	}
}
