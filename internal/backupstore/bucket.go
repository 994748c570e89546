package backupstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Limits of the requests to a bucket.
const (
	awsEndpoint   = "s3.amazonaws.com"
	partSize      = 8 << 20          // bytes of a part, which is in memory while it is sent; there are at most 10,000
	answerTimeout = 30 * time.Second // for the head of an answer
)

// Bucket is a bucket, or what is below a prefix in one. The credentials are those that Amazon's tools use: the variables
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the file ~/.aws/credentials (or AWS_SHARED_CREDENTIALS_FILE), or
// those of the machine.
type Bucket struct {
	name   string
	prefix string // "", or with a slash at its end
	text   string // as it was named
	client *minio.Client
	clear  string // the server, if what is sent to it can be read on the way; "" if it is encrypted, or does not leave the machine
}

// bucketAt reads s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME].
func bucketAt(text string) (*Bucket, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Port() != "" {
		return nil, fmt.Errorf("%q is no bucket: want s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME", redacted(text))
	}
	options := u.Query()
	for name := range options {
		if name != "endpoint" && name != "region" {
			return nil, fmt.Errorf("%q: a bucket has no option %s; want endpoint or region", redacted(text), name)
		}
	}
	endpoint, secure := awsEndpoint, true
	if at := options.Get("endpoint"); at != "" {
		e, err := url.Parse(at)
		if err != nil || e.Host == "" || e.User != nil || strings.Trim(e.Path, "/") != "" || (e.Scheme != "https" && e.Scheme != "http") {
			return nil, fmt.Errorf("%q: the endpoint is no URL like https://s3.example.org", redacted(text))
		}
		endpoint, secure = e.Host, e.Scheme == "https"
	}
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	transport.ResponseHeaderTimeout = answerTimeout
	client, err := minio.New(endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Transport: transport, Timeout: answerTimeout}},
		}),
		Secure: secure, Region: options.Get("region"), Transport: transport, MaxRetries: 3,
	})
	if err != nil {
		return nil, fmt.Errorf("%q: %w", redacted(text), err)
	}
	b := &Bucket{name: u.Host, text: text, client: client}
	if !secure && !isLoopback(client.EndpointURL().Hostname()) {
		b.clear = endpoint
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		b.prefix = prefix + "/"
	}
	return b, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Warning returns a sentence about a place of At or FileAt that somebody should see to; "" otherwise, or without a place.
func Warning(place any) string {
	if b, ok := place.(*Bucket); ok && b.clear != "" {
		return fmt.Sprintf("backups go to %s and come from there without encryption (http://): who is on the way reads all that is in the cell, and can change what is restored; use https://", b.clear)
	}
	return ""
}

// redacted returns a name without its part before an @, which may be a secret.
func redacted(text string) string {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return scheme + "..." + text[i:]
	}
	return text
}

// String implements Place.
func (b *Bucket) String() string { return b.text }

// List implements Place.
func (b *Bucket) List(ctx context.Context) (names []string, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends the listing
	for one := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix}) {
		if one.Err != nil {
			return nil, b.explain("list", one.Err)
		}
		if len(names) == MaxListed {
			return nil, errManyFiles
		}
		if name := strings.TrimPrefix(one.Key, b.prefix); name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

// Create implements Place. Servers that know conditional writes replace nothing even if two write at the same time.
func (b *Bucket) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	_, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	switch {
	case err == nil:
		return exists(name)
	case !isNotThere(err):
		return b.explain("look for "+name, err)
	}
	u := &upload{ctx: ctx, core: minio.Core{Client: b.client}, bucket: b.name, key: b.prefix + name, mark: rand.Text(), part: make([]byte, 0, partSize)}
	u.options.SetMatchETagExcept("*")
	u.options.ContentType, u.options.UserMetadata = contentType, map[string]string{writeKey: u.mark}
	if err := write(u); err != nil {
		u.abort()
		if errors.Is(err, u.failed) {
			return b.explain("write "+name, u.failed)
		}
		return err
	}
	if err = u.finish(); err == nil || u.isThere() { // the answer may have been lost, and a second try refused because of the first
		return nil
	}
	u.abort()
	if minio.ToErrorResponse(err).StatusCode == http.StatusPreconditionFailed {
		return exists(name)
	}
	return b.explain("write "+name, err)
}

// upload writes a file of a bucket in parts, with one in memory. The library's own streams of unknown length forget the
// condition that nothing is replaced.
type upload struct {
	ctx         context.Context
	core        minio.Core
	bucket, key string
	mark        string // of this upload alone, which the object gets
	options     minio.PutObjectOptions
	id          string // of the upload, once a part was sent
	part        []byte // what was not sent yet
	sent        []minio.CompletePart
	failed      error // that a part could not be sent
}

func (u *upload) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if u.ctx.Err() != nil && u.failed == nil {
			u.failed = context.Cause(u.ctx)
		}
		if len(u.part) == cap(u.part) && u.failed == nil {
			u.failed = u.send()
		}
		if u.failed != nil {
			return n, u.failed
		}
		k := min(len(p), cap(u.part)-len(u.part))
		u.part = append(u.part, p[:k]...)
		n, p = n+k, p[k:]
	}
	return n, nil
}

// send sends a part.
func (u *upload) send() (err error) {
	if u.id == "" {
		if u.id, err = u.core.NewMultipartUpload(u.ctx, u.bucket, u.key, minio.PutObjectOptions{ContentType: contentType, UserMetadata: u.options.UserMetadata}); err != nil {
			return err
		}
	}
	part, err := u.core.PutObjectPart(u.ctx, u.bucket, u.key, u.id, len(u.sent)+1, bytes.NewReader(u.part), int64(len(u.part)), minio.PutObjectPartOptions{})
	if err != nil {
		return err
	}
	u.sent, u.part = append(u.sent, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag}), u.part[:0]
	return nil
}

// finish makes the file appear.
func (u *upload) finish() error {
	if u.id == "" {
		_, err := u.core.Client.PutObject(u.ctx, u.bucket, u.key, bytes.NewReader(u.part), int64(len(u.part)), u.options)
		return err
	}
	if err := u.send(); err != nil {
		return err
	}
	_, err := u.core.CompleteMultipartUpload(u.ctx, u.bucket, u.key, u.id, u.sent, u.options)
	return err
}

// abort makes the server forget the parts. If it cannot be reached, the rules of the bucket do (AbortIncompleteMultipartUpload).
func (u *upload) abort() {
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), answerTimeout)
	defer cancel()
	_ = u.core.AbortMultipartUpload(ctx, u.bucket, u.key, u.id)
}

// isThere reports whether the object exists, and this upload made it.
func (u *upload) isThere() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), answerTimeout)
	defer cancel()
	is, err := u.core.Client.StatObject(ctx, u.bucket, u.key, minio.StatObjectOptions{})
	return err == nil && is.UserMetadata[writeKey] == u.mark
}

// writeKey is the metadata of an object that names the upload that made it.
const writeKey = "Chubby-Write"

const contentType = "application/octet-stream"

// Open implements Place.
func (b *Bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err == nil {
		if _, err = object.Stat(); err != nil {
			_ = object.Close()
		}
	}
	if err != nil {
		return nil, b.explain("open "+name, err)
	}
	return object, nil
}

// Remove implements Place.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}); err != nil && !isNotThere(err) {
		return b.explain("remove "+name, err)
	}
	return nil
}

func isNotThere(err error) bool {
	r := minio.ToErrorResponse(err)
	return r.Code == "NoSuchKey" || r.StatusCode == http.StatusNotFound && r.Code != "NoSuchBucket"
}

// explain adds the failed action and the bucket to an error.
func (b *Bucket) explain(what string, err error) error {
	r := minio.ToErrorResponse(err)
	switch {
	case isNotThere(err):
		return fmt.Errorf("%s in %s: %w", what, b, fs.ErrNotExist)
	case r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s in %s: the server refuses these credentials (AWS_ACCESS_KEY_ID, or ~/.aws/credentials), or what they may do: %s", what, b, cmp.Or(r.Code, r.Message))
	}
	return fmt.Errorf("%s in %s: %w", what, b, err)
}
