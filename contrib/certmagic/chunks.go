package chubbystorage

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// head is the contents of a key's file, behind headMark, if the value is in chunks.
type head struct {
	Set    string `json:"set"` // the directory with the chunks, which are named 0, 1 …
	Chunks int    `json:"chunks"`
	Size   int    `json:"size"`   // bytes of the value
	SHA256 string `json:"sha256"` // of the value
}

func parseHead(file string, text []byte) (head, error) {
	var h head
	err := json.Unmarshal(text, &h)
	if err == nil && (h.Set == "" || h.Size < 0 || h.Size > MaxValue || h.Chunks > h.Size) {
		err = fmt.Errorf("it says %+v", h)
	}
	if err != nil {
		return head{}, &api.Error{Code: api.Corrupt, Op: "read", Path: file, Err: err, Message: "the file does not say where its chunks are; store the value again"}
	}
	return h, nil
}

// loadChunks returns the value of a head. NotFound says that chunks are missing.
func loadChunks(ctx context.Context, c *client.Client, file string, h head) ([]byte, error) {
	value := make([]byte, 0, h.Size)
	for i := range h.Chunks {
		chunk, _, err := c.Get(ctx, chunkPath(file, h.Set, i))
		if err != nil {
			return nil, err
		}
		if value = append(value, chunk...); len(value) > h.Size {
			break
		}
	}
	if sum := sha256.Sum256(value); hex.EncodeToString(sum[:]) != h.SHA256 {
		return nil, &api.Error{Code: api.Corrupt, Op: "load", Path: file, Message: "the chunks are not those of the value; store it again"}
	}
	return value, nil
}

func chunkPath(file, set string, i int) string {
	return file + chunkSuffix + "/" + set + "/" + strconv.Itoa(i)
}

// storeChunks puts a large value at a key: its chunks, of that size at most, and then the
// head.
func storeChunks(ctx context.Context, c *client.Client, file string, value []byte, most int) error {
	if _, _, err := c.Get(ctx, file); err != nil && !errors.Is(err, api.NotFound) {
		return err // a directory, for example
	}
	return withWriterLock(ctx, c, file, func(l *client.Lock) error {
		if err := removeUnused(ctx, c, file); err != nil {
			return err
		}
		sum := sha256.Sum256(value)
		h := head{Set: rand.Text(), Size: len(value), SHA256: hex.EncodeToString(sum[:])}
		if err := c.MkdirAll(ctx, file+chunkSuffix+"/"+h.Set); err != nil {
			return err
		}
		for rest := value; len(rest) > 0; h.Chunks++ {
			n := min(len(rest), most)
			if _, err := c.Put(ctx, chunkPath(file, h.Set, h.Chunks), rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		text, err := json.Marshal(h)
		if err != nil {
			return err
		}
		created, err := putFile(ctx, c, file, append([]byte(headMark), text...), client.IfSequencer(l.Sequencer()))
		if err != nil {
			return err
		}
		if err := removeUnused(ctx, c, file); err != nil || !created {
			return err
		}
		return taken(file, l.Release(ctx)) // the chunks may have been removed before the head named them
	})
}

// taken returns LockLost if the release of the writers' lock says that an operator had taken
// it away; else nil.
func taken(file string, released error) error {
	if !errors.Is(released, api.LockLost) && !errors.Is(released, api.HandleClosed) { // HandleClosed: of a file that others have removed
		return nil
	}
	return &api.Error{Code: api.LockLost, Op: "store", Path: file, Err: released, Message: "the lock of the writers was taken away"}
}

// clean removes the chunks of a key that its file does not name, if there are any.
func clean(ctx context.Context, c *client.Client, file string) error {
	if _, err := c.List(ctx, file+chunkSuffix); err != nil {
		if errors.Is(err, api.NotFound) || errors.Is(err, api.NotDirectory) {
			return nil
		}
		return err
	}
	err := withWriterLock(ctx, c, file, func(*client.Lock) error { return removeUnused(ctx, c, file) })
	if err != nil {
		return err
	}
	// If others write chunks now, the directory is not empty, or the lock is held. Those
	// who wait for the lock create it again.
	err = c.Delete(ctx, file+chunkSuffix+"/"+writerLock)
	if err == nil {
		err = c.Delete(ctx, file+chunkSuffix)
	}
	if errors.Is(err, api.NotEmpty) || errors.Is(err, api.LockHeld) || errors.Is(err, api.NotFound) {
		return nil
	}
	return err
}

// withWriterLock calls f while no other writes or removes chunks of a key. A writer that
// has lost the lock with its session cannot write any more, so there is no lock-delay; if
// an operator takes the lock away, others have it when f has returned, or the head that f
// writes depends on the sequencer; a new head cannot, and f looks at the lock afterwards.
func withWriterLock(ctx context.Context, c *client.Client, file string, f func(l *client.Lock) error) (err error) {
	dir := file + chunkSuffix
	var l *client.Lock
	err = inDirectory(ctx, c, dir, func() (err error) {
		l, err = c.Acquire(ctx, dir+"/"+writerLock, client.LockDelay(0), client.Reason("certmagic: write or remove chunks"))
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		// What f has done holds, whatever comes of the lock. It may have failed because others
		// have removed its chunks.
		if lost := taken(file, l.Release(ctx)); err != nil && lost != nil {
			err = lost
		}
	}()
	return f(l)
}

// removeUnused removes the sets of chunks that the file of the key does not name. The
// caller has the lock, so nobody else writes one.
func removeUnused(ctx context.Context, c *client.Client, file string) error {
	contents, _, err := c.Get(ctx, file)
	if err != nil && !errors.Is(err, api.NotFound) {
		return err
	}
	used := ""
	if v, err := parse(file, contents); err == nil && v.head != nil { // a head that cannot be read names no chunks
		used = v.head.Set
	}
	list, err := c.List(ctx, file+chunkSuffix)
	if err != nil {
		return err
	}
	for _, one := range list {
		if name := one.Path.Base(); name != writerLock && name != used {
			if err := c.RemoveAll(ctx, one.Path.String()); err != nil {
				return err
			}
		}
	}
	return nil
}
