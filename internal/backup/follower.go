package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"

	"github.com/chubbylock/chubby/api"
)

// Follower checks the sum of a backup that is written to it, without keeping it: what it is about, and that it has arrived as it was
// sent. Read checks more.
type Follower struct {
	head []byte    // the beginning, until what it is about is known
	last []byte    // the newest bytes, as many as the sum has
	sum  hash.Hash // of what is before them
	n    int64
}

// NewFollower returns a Follower that nothing has been written to.
func NewFollower() *Follower { return &Follower{sum: sha256.New()} }

// Write implements io.Writer. It never fails.
func (f *Follower) Write(p []byte) (int, error) {
	if room := len(magic) + binary.MaxVarintLen64 + maxRecord - len(f.head); room > 0 && f.n == int64(len(f.head)) {
		f.head = append(f.head, p[:min(len(p), room)]...)
	}
	f.n += int64(len(p))
	f.last = append(f.last, p...)
	if over := len(f.last) - sha256.Size; over > 0 {
		f.sum.Write(f.last[:over])
		f.last = append(f.last[:0], f.last[over:]...)
	}
	return len(p), nil
}

// Finish returns what the backup is about, its length and its sum, in hexadecimal, if it is whole.
func (f *Follower) Finish() (about About, size int64, checksum string, err error) {
	broken := &api.Error{Code: api.Corrupt, Op: "check the backup", Message: "it has not arrived as it was sent, or not all of it; take another one"}
	text, ok := bytes.CutPrefix(f.head, []byte(magic))
	if !ok {
		return about, 0, "", broken
	}
	length, n := binary.Uvarint(text)
	if n <= 0 || length > maxRecord || uint64(len(text)-n) < length {
		return about, 0, "", broken
	}
	if err := json.Unmarshal(text[n:n+int(length)], &about); err != nil {
		broken.Err = err
		return about, 0, "", broken
	}
	sum := f.sum.Sum(nil)
	if !bytes.Equal(sum, f.last) {
		return about, 0, "", broken
	}
	return about, f.n, hex.EncodeToString(sum), nil
}
