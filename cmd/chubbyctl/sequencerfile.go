package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/chubbylock/chubby/client"
)

// keepSequencer keeps the sequencer of a lock in --sequencer-file while it is
// held, for programs that CMD's environment does not reach. forget takes it away
// again, and the loss of the lock does at once. A chubbyctl that is killed leaves
// the file, and a sequencer in it that the servers refuse.
func (o *workOptions) keepSequencer(lock *client.Lock) (forget func(), err error) {
	if o.sequencerFile == "" {
		return func() {}, nil
	}
	if err := replaceFile(o.sequencerFile, lock.Sequencer().String()+"\n"); err != nil {
		return nil, fmt.Errorf("--sequencer-file: %w", err)
	}
	var once sync.Once
	remove := func() {
		once.Do(func() {
			if err := os.Remove(o.sequencerFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
				o.notice(fmt.Sprintf("the sequencer file, which says nothing any more, is still there: %v", err))
			}
		})
	}
	stop := lostFunc(lock, remove)
	return func() {
		stop()
		remove()
	}, nil
}

// lostFunc calls f when a lock is lost, until it is stopped; stop waits for f.
func lostFunc(lock *client.Lock, f func()) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-lock.Context().Done():
			f()
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// replaceFile writes a file so that whoever reads it sees all of it or what was
// there before.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
