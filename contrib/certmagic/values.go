package chubbystorage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// The first byte of a key's file says what follows.
const (
	plainMark = "="
	headMark  = "+"
)

// Store puts a value at a key: others read the value that was there, or this one. Values of
// more than MaxValue bytes are TooLarge. NotDirectory says that a prefix of the key has a
// value, IsDirectory that the key is a prefix. If ctx ends before there is an answer, the
// value may have been stored (Uncertain).
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	file, err := s.pathOf("store", key)
	if err != nil {
		return err
	}
	if len(value) > MaxValue {
		return &api.Error{Code: api.TooLarge, Op: "store", Path: file, Message: fmt.Sprintf("the value has %d bytes; at most %d are allowed", len(value), MaxValue)}
	}
	return s.do(ctx, func(c *client.Client) error {
		if len(plainMark)+len(value) > s.chunk {
			return storeChunks(ctx, c, file, value, s.chunk)
		}
		if _, err := putFile(ctx, c, file, append([]byte(plainMark), value...)); err != nil {
			return err
		}
		return clean(ctx, c, file)
	})
}

// putFile replaces the file of a key, whatever is there; if it is there, under the
// conditions. It reports whether it has created the file, so that they did not count.
func putFile(ctx context.Context, c *client.Client, file string, contents []byte, conditions ...client.WriteOption) (created bool, err error) {
	for made := 0; ; {
		_, stat, err := c.Get(ctx, file)
		if err != nil && !errors.Is(err, api.NotFound) {
			return false, err
		}
		// With the condition, a request of a session that was lost changes nothing after the
		// one that was made in its place.
		options := []client.WriteOption{client.IfGeneration(stat.Content)}
		if stat.Content != 0 {
			options = append(options, conditions...)
		}
		_, err = c.Put(ctx, file, contents, options...)
		switch {
		case !errors.Is(err, api.GenerationMismatch):
			return err == nil && stat.Content == 0, err
		case stat.Content == 0 && errors.Is(err, api.NotFound): // the directory is absent
			if made++; made > maxRounds {
				return false, err
			}
			if err := c.MkdirAll(ctx, path.Dir(file)); err != nil {
				return false, err
			}
		}
	}
}

// Load returns the value at a key. fs.ErrNotExist says that there is none, IsDirectory that
// the key is a prefix of others. Corrupt says that the file is not of this package, or
// that chunks were removed by others.
func (s *Storage) Load(ctx context.Context, key string) (value []byte, err error) {
	file, err := s.pathOf("load", key)
	if err != nil {
		return nil, err
	}
	err = s.do(ctx, func(c *client.Client) (err error) {
		value, err = load(ctx, c, file)
		return err
	})
	if err != nil {
		return nil, missing("load", file, err)
	}
	return value, nil
}

func load(ctx context.Context, c *client.Client, file string) ([]byte, error) {
	var last api.Generation // of the head whose chunks were not all there
	for {
		contents, stat, err := c.Get(ctx, file)
		if err != nil {
			return nil, err
		}
		v, err := parse(file, contents)
		if err != nil || v.head == nil {
			return v.plain, err
		}
		value, err := loadChunks(ctx, c, file, *v.head)
		switch {
		case !errors.Is(err, api.NotFound):
			return value, err
		case stat.Content == last:
			return nil, &api.Error{Code: api.Corrupt, Op: "load", Path: file, Err: err, Message: "chunks of the value are missing; store it again"}
		}
		last = stat.Content
	}
}

// Exists reports whether a key has a value or is the prefix of others, and nothing failed.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// Stat returns the size of a key's value and when it was stored, by the clock of the master
// at that time: for display only, it can go back. A prefix of other keys is not terminal.
// fs.ErrNotExist says that the key is neither.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	file, err := s.prefixOf("stat", key)
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	info := certmagic.KeyInfo{Key: key}
	err = s.do(ctx, func(c *client.Client) error {
		contents, stat, err := c.Get(ctx, file)
		if errors.Is(err, api.IsDirectory) {
			info = certmagic.KeyInfo{Key: key}
			return nil
		}
		if err != nil {
			return err
		}
		v, err := parse(file, contents)
		if err != nil {
			return err
		}
		info.IsTerminal, info.Size = true, int64(len(v.plain))
		if v.head != nil {
			info.Size = int64(v.head.Size)
		}
		if stat.ModifiedUnix != 0 {
			info.Modified = time.Unix(stat.ModifiedUnix, 0)
		}
		return nil
	})
	if err != nil {
		return certmagic.KeyInfo{}, missing("stat", file, err)
	}
	return info, nil
}

// stored is what the file of a key says: a value, or where its chunks are.
type stored struct {
	plain []byte
	head  *head
}

// parse reads the file of a key.
func parse(file string, contents []byte) (stored, error) {
	if value, ok := bytes.CutPrefix(contents, []byte(plainMark)); ok {
		return stored{plain: value}, nil
	}
	if text, ok := bytes.CutPrefix(contents, []byte(headMark)); ok {
		h, err := parseHead(file, text)
		return stored{head: &h}, err
	}
	return stored{}, &api.Error{Code: api.Corrupt, Op: "read", Path: file, Message: "the file was not written by this storage; remove it"}
}

// missing returns an error that is fs.ErrNotExist, as CertMagic asks for, if err says that
// there is no such key; else err.
func missing(op, file string, err error) error {
	if code := api.CodeOf(err); code == api.NotFound || code == api.NotDirectory { // not of its cause: a chunk may be missing
		return &api.Error{Code: api.NotFound, Op: op, Path: file, Err: fs.ErrNotExist, Message: "there is no such key"}
	}
	return err
}
