package chubbyvault

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A value that does not fit into one file is cut into chunks: chunks/<id>/0, 1, and so on, with an id that
// no other value ever has. Beside them is a file that names the key, and whose lock the writer holds from
// before the first chunk until the entry's file has been written:
//
//	chunks/<id>/owner   the key; locked by the writer
//	chunks/<id>/0 …     the value
//	data/…/_name        "c <id> <size>": written last, and from then on the value is that
//
// So chunks are garbage if nobody holds the lock, and the file of their key does not name them: their
// writer is done or its session has ended, so that they are not named later either (the cell refuses
// requests of a session that has ended). Whoever removes chunks holds the lock meanwhile.
const ownerFile = "owner"

// staged is a value in chunks that no entry has yet.
type staged struct {
	head  head
	owner *client.Handle // of the owner file; nil if there was none
	lock  *client.Lock   // its lock; nil if it was not acquired
}

// release releases the lock, and reports whether an operator had taken it away. If the session was lost, the entry had been
// written before, as the cell refuses requests of a session that has ended.
func (s staged) release(ctx context.Context) (lost bool) {
	err := s.lock.Release(ctx)
	return errors.Is(err, api.LockLost) || errors.Is(err, api.HandleClosed) // of a file that a sweep has removed
}

// end releases the lock: the chunks are garbage then, unless an entry has them.
func (s staged) end(ctx context.Context) {
	if s.owner == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.CleanupTime)
	defer cancel()
	_ = s.owner.Close(ctx) // in the background, if there is no answer; it releases the lock, too
}

// stage writes the chunks of a value. The caller must call end, also after an error.
func (b *Backend) stage(ctx context.Context, c *client.Client, key string, value []byte) (s staged, err error) {
	s.head = head{id: newID(), size: len(value)}
	dir := b.chunks() + "/" + s.head.id
	if err := c.MkdirAll(ctx, dir); err != nil {
		return s, err
	}
	s.owner, err = c.Open(ctx, dir+"/"+ownerFile, client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte(key)})
	if err != nil {
		return s, err
	}
	if s.lock, err = s.owner.Acquire(ctx, api.Exclusive, client.Reason("writes the chunks of a value")); err != nil {
		return s, err
	}
	for i := range s.head.chunks() {
		part := value[i*api.MaxContents : min((i+1)*api.MaxContents, len(value))]
		if _, err := c.Put(ctx, dir+"/"+strconv.Itoa(i), part); err != nil {
			return s, err
		}
	}
	return s, nil
}

func newID() string {
	var id [idLength / 2]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// putChunked is Put of a value that does not fit into one file.
func (b *Backend) putChunked(ctx context.Context, c *client.Client, w writer, key string, value []byte) error {
	for range maxRounds {
		s, err := b.stage(ctx, c, key, value)
		if err == nil {
			err = b.replace(ctx, c, w, fileOf(key), s.head)
			lost := s.release(ctx)
			s.end(ctx)
			switch {
			case err == nil && lost:
				continue // a sweep may have removed the chunks before the entry had them
			case err == nil:
				b.sweepSome(ctx, c)
				return nil
			}
		}
		// If it is uncertain whether the entry has the chunks: what was sent is done before what comes now, or never.
		s.end(ctx)
		b.tidy(ctx, c, s.head.id)
		if s.lock == nil && (errors.Is(err, api.NotFound) || errors.Is(err, api.HandleClosed)) {
			continue // a sweep came between, and found a file whose lock was free
		}
		return err
	}
	return errRounds("put", b.data()+"/"+fileOf(key))
}

// tidy is collect of chunks whose writer may be about to release the lock, and takes no longer than a
// cleanup call may: what it leaves is for a sweep.
func (b *Backend) tidy(ctx context.Context, c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.CleanupTime)
	defer cancel()
	_, _ = b.collect(ctx, c, id, (*client.Handle).Acquire)
}

// read returns the value of an entry's file.
func (b *Backend) read(ctx context.Context, c *client.Client, file string) (value []byte, found bool, err error) {
	for seen, round := api.Generation(0), 0; round < maxRounds; round++ {
		contents, stat, err := c.Get(ctx, file)
		if errors.Is(err, api.NotFound) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		h, err := decodeHead(contents, file)
		if err != nil {
			return nil, false, err
		}
		if h.id == "" {
			return h.value, true, nil
		}
		value, err := b.readChunks(ctx, c, h)
		switch {
		case err == nil:
			return value, true, nil
		case !errors.Is(err, api.NotFound):
			return nil, false, err
		case seen == stat.Content: // otherwise there is another value by now, and the chunks of this one were removed
			return nil, false, &api.Error{Code: api.Corrupt, Op: "read", Path: file, Err: err, Message: "chunks of its value are missing; were they deleted by hand?"}
		}
		seen = stat.Content
	}
	return nil, false, errRounds("read", file)
}

// readChunks returns a value in chunks; NotFound if they are not all there.
func (b *Backend) readChunks(ctx context.Context, c *client.Client, h head) ([]byte, error) {
	value := make([]byte, 0, h.size)
	for i := range h.chunks() {
		file := b.chunks() + "/" + h.id + "/" + strconv.Itoa(i)
		part, _, err := c.Get(ctx, file)
		if err != nil {
			return nil, err
		}
		value = append(value, part...)
	}
	if len(value) != h.size {
		return nil, &api.Error{Code: api.Corrupt, Op: "read", Path: b.chunks() + "/" + h.id,
			Message: "the chunks are not as long as the value; did another program write them?"}
	}
	return value, nil
}

// discard removes the chunks of a value that an entry does not have any more.
func (b *Backend) discard(ctx context.Context, c *client.Client, contents []byte) {
	if h, err := decodeHead(contents, ""); err == nil && h.id != "" {
		b.tidy(ctx, c, h.id)
	}
}

// collect removes chunks if they are garbage, and reports whether it has. acquire is Acquire or TryAcquire.
func (b *Backend) collect(ctx context.Context, c *client.Client, id string, acquire acquireFunc) (removed bool, err error) {
	dir := b.chunks() + "/" + id
	if used, err := b.isUsed(ctx, c, dir, id); used || err != nil {
		return false, err
	}
	h, err := c.Open(ctx, dir+"/"+ownerFile, client.OpenOptions{Write: true})
	if errors.Is(err, api.NotFound) { // a writer that has not begun, which then fails; or others have collected the rest
		err = c.Delete(ctx, dir)
		return err == nil, without(err, api.NotFound, api.NotEmpty)
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = h.Close(ctx) }() // and the lock with it
	if _, err := acquire(h, ctx, api.Exclusive, client.Reason("removes the chunks of a value that is not used")); err != nil {
		return false, without(err, api.LockHeld, api.LockDelayed, api.HandleClosed) // its writer is at work, or another collects it
	}
	if used, err := b.isUsed(ctx, c, dir, id); used || err != nil { // again: it may have been used before the lock was free
		return false, err
	}
	files, err := children(ctx, c, dir)
	if err != nil {
		return false, err
	}
	for _, file := range files {
		if file.Path.Base() == ownerFile {
			continue
		}
		if err := c.Delete(ctx, file.Path.String()); err != nil && !errors.Is(err, api.NotFound) {
			return false, err
		}
	}
	if err := h.Delete(ctx); err != nil { // last, as whoever comes later has to find the key and the lock
		return false, without(err, api.HandleClosed)
	}
	err = c.Delete(ctx, dir)
	return err == nil, without(err, api.NotFound)
}

type acquireFunc = func(h *client.Handle, ctx context.Context, mode api.LockMode, options ...client.LockOption) (*client.Lock, error)

// isUsed reports whether the file of their key names the chunks.
func (b *Backend) isUsed(ctx context.Context, c *client.Client, dir, id string) (bool, error) {
	key, _, err := c.Get(ctx, dir+"/"+ownerFile)
	if errors.Is(err, api.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	contents, _, err := c.Get(ctx, b.data()+"/"+fileOf(string(key)))
	if errors.Is(err, api.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h, err := decodeHead(contents, b.data()+"/"+fileOf(string(key)))
	return h.id == id, err
}

// without returns an error unless it has one of the codes.
func without(err error, codes ...api.Code) error {
	for _, code := range codes {
		if errors.Is(err, code) {
			return nil
		}
	}
	return err
}

const (
	sweptByPut = 4   // how many values in chunks a Put of another one looks at
	sweepPage  = 100 // how many a step of Sweep looks at
)

// Sweep removes the chunks that writers have left whose processes ended in the middle, and returns how
// many values in chunks it has removed. It looks at every value in chunks, with some calls for each, and
// may run at any time, beside all other calls and in several processes. Nobody has to call it: each Put of
// such a value looks at four others, in turn.
func (b *Backend) Sweep(ctx context.Context) (removed int, err error) {
	err = b.keeper.Do(ctx, func(c *client.Client) error {
		for after, more := "", true; more; {
			var n int
			var err error
			n, after, err = b.sweepPart(ctx, c, after, sweepPage)
			removed += n
			if err != nil {
				return err
			}
			more = after != ""
		}
		return nil
	})
	return removed, err
}

// sweepSome looks at a few values in chunks, and at others the next time.
func (b *Backend) sweepSome(ctx context.Context, c *client.Client) {
	b.mu.Lock()
	after := b.cursor
	b.mu.Unlock()
	_, next, _ := b.sweepPart(ctx, c, after, sweptByPut) // after an error, the next call begins anew
	b.mu.Lock()
	b.cursor = next
	b.mu.Unlock()
}

// sweepPart looks at values in chunks whose ids come after that one, at most as many as most. It returns
// the last of them, "" if no others follow.
func (b *Backend) sweepPart(ctx context.Context, c *client.Client, after string, most int) (removed int, last string, err error) {
	h, err := c.Open(ctx, b.chunks(), client.OpenOptions{Read: true, Kind: api.Directory})
	if err != nil {
		return 0, "", without(err, api.NotFound)
	}
	page, more, err := h.ReadDirPage(ctx, after, most)
	_ = h.Close(ctx)
	if err != nil {
		return 0, "", err
	}
	for _, dir := range page {
		gone, err := b.collect(ctx, c, dir.Path.Base(), (*client.Handle).TryAcquire)
		if err != nil {
			return removed, "", err
		}
		if gone {
			removed++
		}
	}
	if more {
		last = page[len(page)-1].Path.Base()
	}
	return removed, last, nil
}
