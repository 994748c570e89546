package seeds

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse(`[]byte("a\t\x00")` + "\t" + `string("b\n(x)")` + "\t" + `byte('\xff')` + "\tbool(true)\tuint64(18446744073709551615)")
	if want := []any{[]byte("a\t\x00"), "b\n(x)", byte(0xff), true, uint64(1<<64 - 1)}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "int(1)", `string("a`, "bool(x)", "uint64(-1)", `string("a") string("b")`} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
