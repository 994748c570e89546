package tenure

import "os"

// feed is CMD's standard input: bytes in a pipe.
type feed struct {
	out, in *os.File
	done    chan struct{} // closed when the write has ended
}

// startFeed begins to write. CMD need not read all, or any of it.
func startFeed(data []byte) (*feed, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &feed{out: out, in: in, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer in.Close()
		_, _ = in.Write(data) // ends early when nobody can read any more
	}()
	return f, nil
}

// passOn is called when CMD has the reading end, or never will: the write ends with CMD and its descendants.
func (f *feed) passOn() { f.out.Close() }

func (f *feed) wait() { <-f.done }
