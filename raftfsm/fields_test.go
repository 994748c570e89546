package raftfsm

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

var updateFields = flag.Bool("update", false, "add new fields to testdata/fields.txt")

const fieldsFile = "testdata/fields.txt"

// schemaField is one field in the log or in snapshots, as a line of testdata/fields.txt.
type schemaField struct {
	owner, name, key, kind string
	since                  int
}

func (f schemaField) String() string {
	return fmt.Sprintf("%s.%s %s %s since %d", f.owner, f.name, f.key, f.kind, f.since)
}

// schema lists every field, in the order of the records.
func schema() (list []schemaField) {
	everyField(func(owner string, f reflect.StructField) {
		key := strings.ReplaceAll(f.Tag.Get("cbor"), ",keyasint", "")
		if f.Anonymous && key == "" {
			key = "embedded"
		}
		list = append(list, schemaField{owner: owner, name: f.Name, key: key, kind: formOf(f.Type), since: sinceLevel(f)})
	})
	return list
}

// formOf returns a type's name and its encoding.
func formOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + formOf(t.Elem())
	case reflect.Slice:
		return "[]" + formOf(t.Elem())
	case reflect.Array:
		return fmt.Sprintf("[%d]", t.Len()) + formOf(t.Elem())
	case reflect.Struct:
		return shortName(t)
	}
	if t.String() == t.Kind().String() {
		return t.String()
	}
	return t.String() + "(" + t.Kind().String() + ")"
}

// faults compares the present fields with those of a file, and says what to do about each that
// differs. added are the fields to be added to the file.
func faults(was, is []schemaField) (faults []string, added []schemaField) {
	known, owners, keys := map[string]schemaField{}, map[string]bool{}, map[string]string{}
	for _, f := range was {
		known[f.owner+"."+f.name], owners[f.owner] = f, true
		keys[f.owner+" "+number(f.key)] = f.name
	}
	there := map[string]bool{}
	for _, f := range is {
		id := f.owner + "." + f.name
		there[id] = true
		before, old := known[id]
		user, used := keys[f.owner+" "+number(f.key)]
		switch {
		case old && f != before:
			faults = append(faults, fmt.Sprintf("%v was\n\t%v: released versions write and read it so. Leave it, and add a field with a number of its own", f, before))
		case old:
		case f.key == "":
			faults = append(faults, fmt.Sprintf("%s has no number: tag it `cbor:\"N,keyasint,omitempty\"`", id))
		case used && f.key != "embedded" && user != f.name:
			faults = append(faults, fmt.Sprintf("%v has the number of %s.%s: give it one that no field ever had", f, f.owner, user))
		case owners[f.owner] && f.since <= 1:
			faults = append(faults, fmt.Sprintf("%s is new in a type of released versions, which cannot read it: raise MaxLevel, if that was not done since the last release, and tag the field `since:\"N\"` with it", id))
		case f.since > MaxLevel:
			faults = append(faults, fmt.Sprintf("%v is of a level above MaxLevel, %d", f, MaxLevel))
		default:
			added = append(added, f)
		}
		keys[f.owner+" "+number(f.key)] = f.name
	}
	for _, f := range was {
		if !there[f.owner+"."+f.name] {
			faults = append(faults, fmt.Sprintf("%v is gone, and logs and snapshots may have it: keep the field, and ignore it", f))
		}
	}
	return faults, added
}

// number is the key of a field without its options.
func number(key string) string {
	n, _, _ := strings.Cut(key, ",")
	return n
}

func readFields(t *testing.T) (list []schemaField) {
	t.Helper()
	data, err := os.ReadFile(fieldsFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		var f schemaField
		var id string
		if _, err := fmt.Sscanf(line, "%s %s %s since %d", &id, &f.key, &f.kind, &f.since); err != nil {
			t.Fatalf("%s: %q: %v", fieldsFile, line, err)
		}
		at := strings.LastIndexByte(id, '.')
		f.owner, f.name = id[:at], id[at+1:]
		list = append(list, f)
	}
	return list
}

// The file lists every field that a released version has written. So no change of a type can make
// its logs and snapshots unreadable, or let a replica write what the others cannot read. -update
// adds fields to the file and never changes or removes one.
func TestFields(t *testing.T) {
	wrong, added := faults(readFields(t), schema())
	for _, fault := range wrong {
		t.Error(fault)
	}
	if len(added) == 0 {
		return
	}
	if !*updateFields || len(wrong) > 0 {
		t.Errorf("%d new fields, of %s.%s and others: run go test ./raftfsm -run '^TestFields$' -update", len(added), added[0].owner, added[0].name)
		return
	}
	slices.SortStableFunc(added, func(a, b schemaField) int { return strings.Compare(a.owner, b.owner) })
	file, err := os.OpenFile(fieldsFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range added {
		if _, err := fmt.Fprintln(file, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// Each harmful change of a field is found, and the message says what to do.
func TestFaultsOfFields(t *testing.T) {
	old := schemaField{owner: "raftfsm.Open", name: "Name", key: "2", kind: "api.Name(string)", since: 1}
	with := func(change func(f *schemaField)) []schemaField {
		f := old
		change(&f)
		return []schemaField{old, f}
	}
	for what, c := range map[string]struct {
		is   []schemaField
		says string
	}{
		"nothing":             {[]schemaField{old}, ""},
		"another type":        {with(func(f *schemaField) { f.kind = "string" })[1:], "Leave it"},
		"another key":         {with(func(f *schemaField) { f.key = "3" })[1:], "Leave it"},
		"another option":      {with(func(f *schemaField) { f.key = "2,omitempty" })[1:], "Leave it"},
		"another level":       {with(func(f *schemaField) { f.since = 2 })[1:], "Leave it"},
		"no such field":       {nil, "keep the field"},
		"a key that was used": {with(func(f *schemaField) { f.name, f.since = "Other", MaxLevel }), "no field ever had"},
		"no level":            {with(func(f *schemaField) { f.name, f.key = "Other", "3" }), "since"},
		"no key":              {with(func(f *schemaField) { f.name, f.key = "Other", "" }), "has no number"},
		"a level of later":    {with(func(f *schemaField) { f.name, f.key, f.since = "Other", "3", MaxLevel+1 }), "above MaxLevel"},
	} {
		wrong, added := faults([]schemaField{old}, c.is)
		if len(added) > 0 || (len(wrong) > 0) != (c.says != "") || len(wrong) > 0 && !strings.Contains(wrong[0], c.says) {
			t.Errorf("%s: %q, added %v; want %q", what, wrong, added, c.says)
		}
	}
	next := schemaField{owner: "raftfsm.Next", name: "Field", key: "1", kind: "int", since: 1}
	if wrong, added := faults([]schemaField{old}, []schemaField{old, next}); len(wrong) > 0 || len(added) != 1 {
		t.Errorf("a new type, whose fields need no level of their own: %q, added %v", wrong, added)
	}
}

// sinceLevel returns the level at which a field was added.
func sinceLevel(f reflect.StructField) int {
	if level, err := strconv.Atoi(f.Tag.Get("since")); err == nil {
		return level
	}
	return 1
}

// A command needs the level of each field that is set in it, however deep: Command.Level knows every tag.
func TestGates(t *testing.T) {
	var c Command
	var visit func(v reflect.Value, path string, level int)
	visit = func(v reflect.Value, path string, level int) {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			visit(v.Elem(), path, level)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			visit(v.Index(1), path, level)
		case reflect.Array:
			visit(v.Index(0), path, level)
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					visit(v.Field(i), path+"."+f.Name, max(level, sinceLevel(f)))
				}
			}
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.Set(reflect.ValueOf(1).Convert(v.Type()))
		}
		if got := c.Level(); got != level {
			t.Errorf("Command.Level returns %d with %s set: it was added at %d", got, path, level)
		}
		v.SetZero()
	}
	visit(reflect.ValueOf(&c).Elem(), "Command", 1)
	for cause := refusal.Cause(1); cause.IsKnown(); cause++ {
		cancel := Command{Cancel: &Cancel{Refusal: &refusal.Refusal{Cause: cause}}}
		if got := cancel.Level(); got != cause.Level() {
			t.Errorf("Command.Level returns %d of a Cancel because of %v: it was added at %d", got, cause, cause.Level())
		}
	}
}

// A command with a field above the cell's level is refused before it is proposed.
func TestCommandAboveTheLevel(t *testing.T) {
	c := Command{RaiseLease: &RaiseLease{Session: 1, Lease: api.MaxLease}}
	if _, err := c.Encode(1); err != nil {
		t.Error(err)
	}
	if _, err := c.Encode(0); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a command above the level: %v", err)
	}
}
