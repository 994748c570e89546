package backupstore

import (
	"strings"
	"testing"
)

// Of a bucket to which backups go in the clear is said that they do, and which server it is.
func TestWarningOfBucketsInTheClear(t *testing.T) {
	for text, want := range map[string]string{
		"s3://b":                                      "",
		"s3://b?endpoint=https://s3.example.org":      "",
		"s3://b?endpoint=http://localhost:9000":       "",
		"s3://b?endpoint=http://127.0.0.1:9000":       "",
		"s3://b?endpoint=http://[::1]:9000":           "",
		"/var/lib/chubby/backups":                     "",
		"s3://b?endpoint=http://s3.example.org":       "go to s3.example.org",
		"s3://b?endpoint=http://minio:9000":           "go to minio:9000",
		"s3://b/x?region=eu&endpoint=http://10.0.0.7": "go to 10.0.0.7",
		"s3://b?endpoint=http://127.0.0.1.nip.io":     "go to 127.0.0.1.nip.io",
	} {
		p, err := At(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Warning(p); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if Warning(nil) != "" {
		t.Error("no place is warned of")
	}
}
