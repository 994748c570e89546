package sequencer

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net/url"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// The text of a sequencer:
//
//	chubby1 : mode : generation : cell id : checksum : path
//	chubby2 : mode : generation : cell id : proof : checksum : path
//
// with mode x or s, the generation in decimal, the proof in URL-safe base64 without padding, the checksum (CRC-32C of all the
// rest) in eight hexadecimal digits, and the path with every byte but letters,
// digits and -._~/ written as %XX. The second form is that of a sequencer with a proof.
const (
	version       = "chubby1:"
	provedVersion = "chubby2:"
	proofLen      = 16
	checksumLen   = 8
	headMost      = len(version) + len("x:") + len("9007199254740991:") + 32 + len(":") + proofLen + len(":")
)

// Proof is how the cell knows a sequencer for its own: a keyed hash of the rest, which nobody else can make or check. The zero Proof
// is none: a cell below feature level 3 makes none.
type Proof [12]byte

// MaxText bounds the bytes of a sequencer's text: every byte of its path may be
// escaped. Texts of ordinary paths have about a hundred bytes.
const MaxText = headMost + checksumLen + len(":") + 3*api.MaxPath

// Sequencer describes a lock directly after its grant (Chubby §2.4): the cell
// and its bootstrap, the node, the mode, and the generation of the lock at that
// time. It does not prove that the lock is held now; a Guard, or the cell,
// knows whether it is still the newest. Sequencers can be compared with ==; of
// one grant there may be one with a proof and one without.
type Sequencer struct {
	Cell       api.CellID
	Path       api.Path
	Mode       api.LockMode
	Generation api.Generation // from 1 to api.MaxGeneration
	Proof      Proof
}

// bare returns s without its proof: what a guard compares and stores.
func (s Sequencer) bare() Sequencer {
	s.Proof = Proof{}
	return s
}

// Parse reads what String writes, and nothing else: each sequencer has exactly
// one text. Its error has the code BadSequencer; the message distinguishes
// damaged text, which fails the checksum, from text that is not a sequencer of
// this version.
func Parse(text string) (Sequencer, error) {
	rest, ok := strings.CutPrefix(text, version)
	proved := false
	if !ok {
		rest, proved = strings.CutPrefix(text, provedVersion)
		ok = proved
	}
	switch {
	case text == "":
		return bad("the sequencer is empty; send the one that came with the lock")
	case len(text) > MaxText:
		return bad("the text is %d bytes long, a sequencer at most %d", len(text), MaxText)
	case !ok:
		return bad("%.40q is not a sequencer of this version: one begins with %q or %q", text, version, provedVersion)
	}
	mode, rest, _ := strings.Cut(rest, ":")
	generation, rest, _ := strings.Cut(rest, ":")
	cell, rest, _ := strings.Cut(rest, ":")
	proof := ""
	if proved {
		proof, rest, _ = strings.Cut(rest, ":")
	}
	sum, path, ok := strings.Cut(rest, ":")
	if !ok {
		return bad("the sequencer %.60q is truncated: parts of it are missing; send the whole text", text)
	}
	head := text[:len(text)-len(rest)]
	if want := checksum(head, path); sum != want {
		return bad("the sequencer %.60q is damaged (checksum %.8q, computed %q): it was cut or mistyped on its way, which says nothing about the lock",
			text, sum, want)
	}
	s, err := assemble(mode, generation, cell, path)
	if err != nil {
		return Sequencer{}, err
	}
	//mutants: same (the canonical form is another)
	if raw, err := base64.RawURLEncoding.DecodeString(proof); err != nil || proved && len(raw) != len(s.Proof) {
		return bad("the sequencer %.60q has a malformed proof", text)
	} else if proved {
		s.Proof = Proof(raw)
	}
	if s.String() != text {
		return bad("the sequencer %.60q is not written in its one canonical form", text)
	}
	return s, nil
}

// assemble interprets the parts of a text whose checksum is right.
func assemble(mode, generation, cell, path string) (Sequencer, error) {
	var s Sequencer
	switch mode {
	case "x":
		s.Mode = api.Exclusive
	case "s":
		s.Mode = api.Shared
	default:
		return bad("the sequencer has the mode %.10q; this version knows x and s", mode)
	}
	n, err := strconv.ParseUint(generation, 10, 64)
	//mutants: same (then n is 0 or too large)
	if err != nil || n == 0 || n > api.MaxGeneration {
		return bad("the sequencer has the generation %.24q; one is from 1 to %d", generation, uint64(api.MaxGeneration))
	}
	s.Generation = api.Generation(n)
	//mutants: same (the canonical form is another)
	if s.Cell, err = api.ParseCellID(cell); err != nil {
		//mutants: same (the canonical form is another)
		return Sequencer{}, malformed(err, "the sequencer names no cell")
	}
	// Other spellings of the path are another text than String's, which Parse refuses.
	raw, err := url.PathUnescape(path)
	if err != nil {
		return bad("the path %.60q of the sequencer has a malformed %% escape", path)
	}
	if s.Path, err = api.ParsePath(raw); err != nil {
		return Sequencer{}, malformed(err, "the sequencer names no lock")
	}
	return s, nil
}

// String returns the one text of s: printable ASCII without spaces, quotes or
// other characters that are special in an environment variable, an HTTP header,
// a gRPC metadata value or a shell. It is empty if s is invalid (a part is
// missing or out of range).
func (s Sequencer) String() string {
	if s.fault() != "" {
		return ""
	}
	mode := byte('x')
	if s.Mode == api.Shared {
		mode = 's'
	}
	path := escape(s.Path.String())
	b := make([]byte, 0, headMost+checksumLen+1+len(path))
	head := version
	if s.Proof != (Proof{}) {
		head = provedVersion
	}
	b = append(b, head...)
	b = append(b, mode, ':')
	b = strconv.AppendUint(b, uint64(s.Generation), 10)
	b = append(b, ':')
	b = append(b, s.Cell...)
	b = append(b, ':')
	if s.Proof != (Proof{}) {
		b = append(base64.RawURLEncoding.AppendEncode(b, s.Proof[:]), ':')
	}
	b = append(b, checksum(string(b), path)...)
	b = append(b, ':')
	return string(append(b, path...))
}

// Token returns the fencing token: of two grants of one lock in one cell, the
// later has the greater token. It is at most api.MaxGeneration, so a signed
// 64-bit SQL column and a JSON number hold it exactly, and is never 0 in a
// parsed Sequencer.
func (s Sequencer) Token() uint64 { return uint64(s.Generation) }

// MarshalText returns String's text, or a BadSequencer error if s is invalid.
func (s Sequencer) MarshalText() ([]byte, error) {
	if fault := s.fault(); fault != "" {
		return nil, malformed(nil, "this value has no text: %s", fault)
	}
	return []byte(s.String()), nil
}

// UnmarshalText sets s to what Parse returns, and does not change s on an
// error.
func (s *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// fault says why s is invalid, "" if it is valid.
func (s Sequencer) fault() string {
	_, err := api.ParseCellID(string(s.Cell))
	switch {
	case err != nil:
		return "its cell id is malformed"
	case s.Path.IsZero():
		return "it names no lock"
	case !s.Mode.Valid():
		return "its mode is neither exclusive nor shared"
	case s.Generation == 0 || s.Generation > api.MaxGeneration:
		return "its generation is out of range"
	}
	return ""
}

// checksum covers every byte of the text except itself, so that damage is never
// taken for staleness. It protects against accidents; against forgery only the proof does, and only the cell can check that.
func checksum(head, path string) string {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum([]byte(head), table), table, []byte(path))
	var text [checksumLen]byte
	hex.Encode(text[:], binary.BigEndian.AppendUint32(make([]byte, 0, checksumLen/2), sum))
	return string(text[:])
}

// plain reports whether c is not escaped in a path: the characters that RFC
// 3986 calls unreserved, and the slash.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '/' || c == '-' || c == '.' || c == '_' || c == '~'
}

func escape(path string) string {
	const digits = "0123456789ABCDEF"
	clean := 0
	//mutants: same (it only saves work)
	for clean < len(path) && plain(path[clean]) {
		clean++
	}
	//mutants: same (it only saves work)
	if clean == len(path) {
		return path
	}
	//mutants: same (only how much room is made)
	b := make([]byte, clean, 3*len(path))
	copy(b, path)
	for _, c := range []byte(path[clean:]) {
		if plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func bad(format string, args ...any) (Sequencer, error) {
	return Sequencer{}, malformed(nil, format, args...)
}

func malformed(cause error, format string, args ...any) error {
	return &api.Error{Code: api.BadSequencer, Op: "read sequencer", Message: fmt.Sprintf(format, args...), Err: cause}
}

// Source is what has a sequencer, such as a lock of package client. Sequencer may be
// called from several goroutines.
type Source interface{ Sequencer() Sequencer }

type contextKey struct{}

// NewContext returns a context for work under a lock, in which FromContext finds the
// sequencer of that lock, and so do the client interceptors of seqgrpc and the
// Transport of seqhttp. The contexts of package client's locks are such contexts
// (Lock.Context, Lock.With). nil hides the sequencer of ctx: it is for work under
// several locks, of which each server is to be sent its own.
func NewContext(ctx context.Context, of Source) context.Context {
	return context.WithValue(ctx, contextKey{}, of)
}

// FromContext returns the sequencer that goes with the work in ctx: in a request that a
// Guard runs, that of the request; in the context of a lock, or in one made from that,
// that of the lock, also when the lock has been lost since. It is false if there is
// none. Of contexts within each other, the innermost counts.
func FromContext(ctx context.Context) (Sequencer, bool) {
	switch of := ctx.Value(contextKey{}).(type) {
	case Sequencer: // Guard.Do
		return of, true
	case Source:
		return of.Sequencer(), true
	}
	return Sequencer{}, false
}
