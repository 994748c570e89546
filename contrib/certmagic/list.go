package chubbystorage

import (
	"context"
	"errors"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// List returns the keys below a prefix, without the prefix itself, by name; the empty
// prefix is that of all keys. Among them are prefixes of other keys ("directories"); if
// recursive is true also the keys below those. What others store and delete meanwhile may
// be in it or not. A key that has a value has none below it. fs.ErrNotExist says that there
// is neither such a key nor such a prefix.
func (s *Storage) List(ctx context.Context, prefix string, recursive bool) (keys []string, err error) {
	dir, err := s.prefixOf("list", prefix)
	if err != nil {
		return nil, err
	}
	err = s.do(ctx, func(c *client.Client) (err error) {
		keys, err = list(ctx, c, dir, prefix, recursive)
		if errors.Is(err, api.NotDirectory) { // it is a file, or below one
			_, _, err = c.Get(ctx, dir)
		}
		return err
	})
	if err != nil {
		return nil, missing("list", dir, err)
	}
	return keys, nil
}

func list(ctx context.Context, c *client.Client, dir, prefix string, recursive bool) ([]string, error) {
	children, err := c.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, child := range children {
		component, ok := decode(child.Path.Base())
		if !ok { // the chunks of a key
			continue
		}
		key := strings.TrimPrefix(prefix+"/"+component, "/")
		keys = append(keys, key)
		if !recursive || child.Kind != api.Directory {
			continue
		}
		below, err := list(ctx, c, child.Path.String(), key, true)
		if err != nil && !errors.Is(err, api.NotFound) && !errors.Is(err, api.NotDirectory) { // it was deleted meanwhile
			return nil, err
		}
		keys = append(keys, below...)
	}
	return keys, nil
}

// Delete deletes a key, and if it is a prefix of others all of those. A key that does not
// exist is no error. If it fails, a part of the keys may have been deleted.
func (s *Storage) Delete(ctx context.Context, key string) error {
	file, err := s.pathOf("delete", key)
	if err != nil {
		return err
	}
	return s.do(ctx, func(c *client.Client) error { return remove(ctx, c, file) })
}

// remove deletes the file of a key with its chunks, or a directory.
func remove(ctx context.Context, c *client.Client, file string) error {
	for round := 1; ; round++ {
		err := c.Delete(ctx, file)
		switch {
		case err == nil, errors.Is(err, api.NotFound), errors.Is(err, api.NotDirectory):
			return clean(ctx, c, file)
		case !errors.Is(err, api.NotEmpty) || round > maxRounds:
			return err
		}
		if err := removeBelow(ctx, c, file); err != nil {
			return err
		}
	}
}

// removeBelow deletes what is in a directory. It does not remove the chunks that somebody
// is writing, but waits for the writer.
func removeBelow(ctx context.Context, c *client.Client, dir string) error {
	children, err := c.List(ctx, dir)
	if errors.Is(err, api.NotFound) || errors.Is(err, api.NotDirectory) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, child := range children {
		file, isChunks := strings.CutSuffix(child.Path.String(), chunkSuffix)
		switch _, isKey := decode(child.Path.Base()); {
		case isKey, isChunks:
			err = remove(ctx, c, file)
		default: // of somebody else
			err = c.RemoveAll(ctx, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
