package term

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

// YAML says what JSON says: every value has the same type and text, also where a string looks like
// something else, and nothing in it gives orders to a terminal.
func TestYAMLIsJSON(t *testing.T) {
	v := map[string]any{
		"no": "no", "yes": "on", "null": "null", "number": "1e3", "octal": "0o7", "empty": "", "space": " x ", "lines": "a\nb\n", "colon": "a: b #c",
		"quotes": `"'\`, "bell": "\a\x1b[31m", "hidden": "a\u202eb\u2028c\ufeffd\U000e0001e", "text": "日本語 😀", "a\u202eb": 1.0,
		"n": 12.0, "large": 9007199254740993.0, "float": 1.5, "true": true, "nil": nil, "list": []any{}, "map": map[string]any{},
		"nested": []any{map[string]any{"a": []any{"x", 1.0}}, "y"},
	}
	var b bytes.Buffer
	if err := YAML.Print(&b, v); err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsFunc(b.Bytes(), escapable) {
		t.Errorf("a terminal would obey this:\n%q", b.String())
	}
	var read any
	if err := yaml.Unmarshal(b.Bytes(), &read); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	again, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(again, &got); err != nil || !reflect.DeepEqual(got, any(v)) {
		t.Errorf("%v\ngot  %#v\nwant %#v\nfrom\n%s", err, got, v, b.String())
	}
}

// Each object is a document of its own, with its fields in order.
func TestYAMLDocuments(t *testing.T) {
	var b bytes.Buffer
	for range 2 {
		if err := YAML.Print(&b, struct {
			Path    string   `json:"path"`
			Holders []string `json:"holders"`
			Delayed float64  `json:"delayed_s"`
		}{"/ls/local/a", []string{"ann"}, 0}); err != nil {
			t.Fatal(err)
		}
	}
	one := "---\npath: \"/ls/local/a\"\nholders:\n  - \"ann\"\ndelayed_s: 0\n"
	if b.String() != one+one {
		t.Errorf("it reads\n%s", b.String())
	}
}

// Fields are an object with its fields in order; what is optional is left out if it is zero or empty, and nothing else is.
func TestFieldsAreInOrder(t *testing.T) {
	inner := func(n int) Fields { return Fields{"n", n} }
	f := Fields{"path", "/a<b>", "at_s", (*float64)(nil), "all", Each([]int{1, 2}, inner), "none", Each(nil, inner)}
	f = f.With("zero", 0).With("empty", Each(nil, inner)).With("unknown", (*int)(nil)).With("more", 7).With("nil", nil).With("map", map[string]int{})
	var b bytes.Buffer
	for _, one := range []Fields{f, {}} {
		if err := JSON.Print(&b, one); err != nil {
			t.Fatal(err)
		}
	}
	if want := `{"path":"/a<b>","at_s":null,"all":[{"n":1},{"n":2}],"none":[],"more":7}` + "\n{}\n"; b.String() != want {
		t.Errorf("printed\n%swant\n%s", b.String(), want)
	}
	if err := JSON.Print(&b, Fields{"f", func() {}}); err == nil {
		t.Error("a function was printed")
	}
}
