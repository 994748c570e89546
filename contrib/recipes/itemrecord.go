package recipes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// itemRecord is what a queue knows of an item: the first line of its file, in JSON. The data follow it.
type itemRecord struct {
	Version  int    `json:"queue"`              // of this form; itemVersion
	Attempts int    `json:"attempts,omitempty"` // how often it was begun
	Begun    bool   `json:"begun,omitempty"`    // the last try has not said yet how it ended
	Dead     bool   `json:"dead,omitempty"`     // it is a dead letter
	Delay    int64  `json:"delay_s,omitempty"`  // seconds, since these contents were written, in which nobody takes it
	Reason   string `json:"reason,omitempty"`   // why the last try that failed did
}

const (
	itemVersion = 1
	// maxItemHeader bounds the first line: a reason of api.MaxReason bytes takes six times as many if all of them
	// have to be escaped.
	maxItemHeader = 2 << 10
	// minItemHeader is the least length of the first line, which spaces fill up: that of a record without a reason. So
	// what is counted has had its room since the item was put, where a quota leaves no more.
	minItemHeader = 80
)

// with returns the contents of the file.
func (r itemRecord) with(data []byte) []byte {
	r.Version = itemVersion
	r.Reason = strings.ToValidUTF8(r.Reason, "?")
	header, _ := json.Marshal(r) // no value makes it fail
	for len(header) < minItemHeader {
		header = append(header, ' ')
	}
	return append(append(header, '\n'), data...)
}

// parseItem reads the contents of an item's file.
func parseItem(path string, contents []byte) (r itemRecord, data []byte, err error) {
	header, data, ended := bytes.Cut(contents, []byte("\n"))
	bad := func(format string, args ...any) (itemRecord, []byte, error) {
		return itemRecord{}, nil, &api.Error{Code: api.InvalidArgument, Op: "take an item", Path: path, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case !ended || len(header) > maxItemHeader || json.Unmarshal(header, &r) != nil || r.Version < 1:
		return bad("the file does not begin with the record of an item; was it written by something else?")
	case r.Version != itemVersion:
		return bad("the record of the item is of version %d, and this program knows version %d", r.Version, itemVersion)
	case len(data) > MaxItemSize: // its record could not be written
		return bad("the item has %d bytes of data; a queue takes at most %d", len(data), MaxItemSize)
	}
	return r, data, nil
}

// write writes the record and the data, as the holder of the item's lock, if the contents are those of a generation.
// Where a quota leaves no room for the reason it writes the record without.
func (r itemRecord) write(ctx context.Context, h *client.Handle, l *client.Lock, data []byte, was api.Generation) (api.Stat, error) {
	stat, err := h.SetContents(ctx, r.with(data), client.IfGeneration(was), client.IfSequencer(l.Sequencer()))
	if errors.Is(err, api.QuotaExceeded) && r.Reason != "" {
		r.Reason = ""
		return r.write(ctx, h, l, data, was)
	}
	return stat, err
}

// next returns the record of the next try, or that of a dead letter, if limit tries were begun and none has done the
// item; 0 is without limit.
func (r itemRecord) next(limit int) (next itemRecord, dead bool) {
	r.Delay = 0
	if r.Begun {
		r.Reason = fmt.Sprintf("try %d did not say how it ended: its worker died, lost the item, or abandoned it", r.Attempts)
	}
	if limit > 0 && r.Attempts >= limit {
		r.Begun, r.Dead = false, true
		return r, true
	}
	r.Attempts++
	r.Begun = true
	return r, false
}

// failed returns the record after a try that failed.
func (r itemRecord) failed(limit int, reason string, delay int64) itemRecord {
	r.Begun, r.Reason, r.Delay = false, reason, delay
	if limit > 0 && r.Attempts >= limit {
		r.Dead, r.Delay = true, 0
	}
	return r
}
