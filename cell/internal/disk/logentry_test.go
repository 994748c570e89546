package disk

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// TestLogChecksum: an entry is read as it was written, the writer's own copy
// does not change, and any change of the stored bytes is noticed.
func TestLogChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := newFaultyStore()
		l, _, _, told := failStopTrio(inner)
		some := rapid.SliceOfN(rapid.Byte(), 0, 20)
		log := &raft.Log{
			Index: rapid.Uint64Range(1, 5).Draw(t, "index"), Term: rapid.Uint64().Draw(t, "term"),
			Type: raft.LogType(rapid.IntRange(0, 5).Draw(t, "type")), Data: some.Draw(t, "data"), Extensions: some.Draw(t, "extensions"),
			AppendedAt: time.Unix(1, 2),
		}
		if len(log.Extensions) == 0 {
			log.Extensions = nil
		}
		before := *log
		before.Data, before.Extensions = bytes.Clone(log.Data), bytes.Clone(log.Extensions)
		if err := l.StoreLog(log); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, *log) {
			t.Fatalf("the writer's entry became %+v", *log)
		}
		var back raft.Log
		if err := l.GetLog(log.Index, &back); err != nil || !reflect.DeepEqual(back, before) {
			t.Fatalf("%+v came back as %+v, %v", before, back, err)
		}

		var stored raft.Log
		if err := inner.InmemStore.GetLog(log.Index, &stored); err != nil {
			t.Fatal(err)
		}
		damaged := stored
		damaged.Data, damaged.Extensions = bytes.Clone(stored.Data), bytes.Clone(stored.Extensions)
		at := log.Index
		switch what := rapid.IntRange(0, 6).Draw(t, "damage"); {
		case what == 0:
			damaged.Term ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
		case what == 1:
			damaged.Type ^= 1
		case what == 2 && len(damaged.Data) > 0:
			damaged.Data[rapid.IntRange(0, len(damaged.Data)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case what == 3:
			damaged.Data = append(damaged.Data, 0)
		case what == 4:
			damaged.Extensions = damaged.Extensions[:rapid.IntRange(0, len(damaged.Extensions)-1).Draw(t, "cut")]
		case what == 5: // an entry in the place of another
			moved := damaged
			moved.Index++
			if err := inner.InmemStore.StoreLog(&moved); err != nil {
				t.Fatal(err)
			}
			at++
		default:
			damaged.Extensions[rapid.IntRange(0, len(damaged.Extensions)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		if at == log.Index {
			if err := inner.InmemStore.StoreLog(&damaged); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.failStop.callOnGoroutine(func() error { return l.GetLog(at, &back) }); api.CodeOf(err) != api.Corrupt {
			t.Fatalf("stored %+v, damaged to %+v: %v", stored, damaged, err)
		}
		if err := <-told; api.CodeOf(err) != api.Corrupt {
			t.Fatalf("fatal was called with %v", err)
		}
	})
}

// misdirectedStore returns entry 1 for every index, as if the disk had written
// it everywhere.
type misdirectedStore struct{ *faultyStore }

func (s misdirectedStore) GetLog(_ uint64, log *raft.Log) error { return s.InmemStore.GetLog(1, log) }

// TestLogInAnothersPlace: a whole entry, with a correct checksum, in the wrong
// place.
func TestLogInAnothersPlace(t *testing.T) {
	inner := newFaultyStore()
	l, _, _, _ := failStopTrio(inner)
	if err := l.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	l.inner = misdirectedStore{inner}
	if err := l.failStop.callOnGoroutine(func() error { return l.GetLog(2, &raft.Log{}) }); api.CodeOf(err) != api.Corrupt {
		t.Errorf("%v, want Corrupt", err)
	}
}

// TestEntryThatCannotBeReadIsNotWritten: if a batch has an entry above the
// limit, no entry of it is written, and the replica ends with a message that
// says what to do.
func TestEntryThatCannotBeReadIsNotWritten(t *testing.T) {
	inner := newFaultyStore()
	logs, _, _, told := failStopTrio(inner)
	logs.maxEntry = 1000
	if err := logs.failStop.callOnGoroutine(func() error {
		return logs.StoreLogs([]*raft.Log{{Index: 1, Data: make([]byte, 988)}}) // plus the mark and the checksum
	}); err != nil {
		t.Fatal(err)
	}
	err := logs.failStop.callOnGoroutine(func() error {
		return logs.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3, Data: make([]byte, 989)}})
	})
	if !errors.Is(err, api.TooLarge) || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("an entry above the limit: %v", err)
	}
	if last, err := inner.InmemStore.LastIndex(); err != nil || last != 1 {
		t.Errorf("the log ends at %d (%v); want 1: nothing of that batch", last, err)
	}
	select {
	case <-told:
	default:
		t.Error("the replica did not end")
	}
}
