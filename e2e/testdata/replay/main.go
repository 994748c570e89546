// Command replay applies the entries of a Raft log, from its standard input, to an empty
// state, and writes the snapshot of the result to its standard output. A test builds it with
// the packages of a release, so it uses what they have.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/chubbylock/chubby/raftfsm"
)

func main() {
	if err := replay(bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "replay: %v\n", err)
		os.Exit(1)
	}
}

// replay reads, of each entry, its index, its term and its size, of 8 bytes each, and its data.
func replay(in io.Reader, out io.Writer) error {
	state := raftfsm.NewState()
	for {
		var head [3]uint64
		err := binary.Read(in, binary.BigEndian, &head)
		if errors.Is(err, io.EOF) {
			_, err = state.WriteTo(out)
			return err
		}
		if err != nil {
			return err
		}
		data := make([]byte, head[2])
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		if _, err := state.ApplyData(head[0], head[1], data, raftfsm.MaxLevel); err != nil {
			return err
		}
	}
}
