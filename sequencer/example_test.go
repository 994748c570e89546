package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// A server that the lock /ls/foo/svc/primary protects runs each request in a
// section of that lock, and refuses those of a primary that was replaced.
func ExampleGuard() {
	directory, _ := os.MkdirTemp("", "guard")
	defer os.RemoveAll(directory)
	store, err := sequencer.OpenFileStore(filepath.Join(directory, "primary"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")},
		Store: store,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	write := func(sequencerOfRequest, value string) {
		err := guard.Do(context.Background(), sequencerOfRequest, func(ctx context.Context) error {
			held, _ := sequencer.FromContext(ctx)
			fmt.Println("wrote", value, "for token", held.Token())
			return nil
		})
		if errors.Is(err, api.BadSequencer) {
			fmt.Println("refused", value)
		}
	}
	was := "chubby1:x:41:00112233445566778899aabbccddeeff:61aa8073:/ls/foo/svc/primary"
	is := "chubby1:x:57:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary"
	write(was, "a")
	write(is, "b")
	write(was, "c")
	fmt.Printf("%+v\n", guard.Stats())
	// Output:
	// wrote a for token 41
	// wrote b for token 57
	// refused c
	// {Accepted:2 RefusedStale:1 RefusedLost:0 RefusedMissing:0 RefusedOther:0}
}

// If the write carries the token and the storage compares it, Check is enough:
// it refuses stale requests before they reach the storage.
func ExampleGuard_Check() {
	directory, _ := os.MkdirTemp("", "guard")
	defer os.RemoveAll(directory)
	store, err := sequencer.OpenFileStore(filepath.Join(directory, "primary"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{
		Prefix: api.MustParsePath("/ls/foo/svc"),
		Store:  store,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	held, err := guard.Check(context.Background(), "chubby1:x:57:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("UPDATE jobs SET state = 'done', token =", held.Token(), "WHERE id = 7 AND token <=", held.Token())
	// Output:
	// UPDATE jobs SET state = 'done', token = 57 WHERE id = 7 AND token <= 57
}

// A sequencer says which lock is held, in which mode, and its token. A program can read these parts
// without asking the cell; only the cell or a guard knows whether they are still valid.
func ExampleParse() {
	s, err := sequencer.Parse("chubby1:x:57:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Path, s.Mode, s.Token())
	_, err = sequencer.Parse("chubby1:x:58:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary") // changed
	fmt.Println(errors.Is(err, api.BadSequencer))
	// Output:
	// /ls/foo/svc/primary exclusive 57
	// true
}
