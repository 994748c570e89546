package console

import (
	"cmp"
	"context"
	"crypto/hmac"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// act is an operation of operators. Its form explains it, and serves as confirmation. The master decides who
// may do it.
type act struct {
	// form returns the form for the values of an address or of a form.
	form  func(ctx context.Context, v *visitor, values url.Values) (actForm, error)
	names []string // values that an address may have: what the act concerns. People enter the rest
	// do performs it, and returns the page that shows the result.
	do   func(ctx context.Context, v *visitor, values url.Values) (to string, err error)
	done string // the message on that page
}

// actForm is the page of an act.
type actForm struct {
	Title   string
	About   []string // sentences that explain it
	Fields  []actField
	Submit  string
	Danger  bool // a client loses something
	Back    string
	Seen    string // returned by the form: it differs if the act would now concern something else
	Refusal string // why it was not done
}

// actField is a field of a form. Its type is an HTML one, or select.
type actField struct {
	Name, Label, Type, Value, Hint string
	Required                       bool
	Options                        []actOption
}

type actOption struct{ Value, Label string }

// acts returns all acts, by the names of their pages.
func (c *Console) acts() map[string]act {
	return map[string]act{
		"break":    {form: breakForm, names: []string{"path"}, do: breakLock, done: "The lock is being taken from its holders."},
		"end":      {form: endForm, names: []string{"session"}, do: endSession, done: "The session has been ended. Its locks are free when their owner has released them, or lease and lock-delays have passed."},
		"transfer": {form: c.transferForm, do: c.transfer, done: "The mastership was handed over."},
		"quota":    {form: quotaForm, names: []string{"principal", "path"}, do: setQuota, done: "The quota was set."},
	}
}

// doneTime is how long a page's address has a message. People share addresses, keep them and go back to them.
const doneTime = 30 * time.Second

// doneMark returns the part of an address that names a completed act.
func (c *Console) doneMark(principal, name string) string {
	at := strconv.FormatInt(int64(c.cfg.Clock()), 36)
	return name + "." + at + "." + c.sign("done", principal, name, at)
}

// done returns the message for the mark in an address. It ignores a mark that is old, or that this console did
// not make for the principal: addresses come from anywhere.
func (c *Console) done(principal, mark string) string {
	name, rest, _ := strings.Cut(mark, ".")
	at, signature, _ := strings.Cut(rest, ".")
	instant, err := strconv.ParseInt(at, 36, 64)
	if err != nil || !hmac.Equal([]byte(signature), []byte(c.sign("done", principal, name, at))) || c.cfg.Clock().Sub(session.Instant(instant)) > doneTime {
		return ""
	}
	return c.acts()[name].done
}

func actPage(a act) show {
	return func(ctx context.Context, v *visitor, q *http.Request, p *page) error {
		values := url.Values{}
		//mutant: for name := range q.URL.Query() { //by TestConsoleFormsFromLinks of ./cell
		for _, name := range a.names {
			values.Set(name, q.URL.Query().Get(name))
		}
		form, err := a.form(ctx, v, values)
		p.Title, p.Content = cmp.Or(form.Title, p.Title), form
		return err
	}
}

// perform performs the act of a form, unless its subject has changed since the form was shown.
func (c *Console) perform(name string, a act) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		who, err := c.guest(q)
		if err != nil || q.ParseForm() != nil || !c.isFormToken(who.Principal, q.PostForm.Get("csrf")) {
			c.refuse(w, http.StatusForbidden, notOurForm)
			return
		}
		ctx, cancel := context.WithTimeout(q.Context(), maxPageTime)
		defer cancel()
		v, err := c.visitors.enter(ctx, who)
		if err != nil {
			c.refuse(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		defer c.visitors.leave(v)
		form, err := a.form(ctx, v, q.PostForm)
		code := http.StatusConflict
		switch {
		case err != nil:
			form, code = actForm{Title: cmp.Or(form.Title, "It was not done"), Refusal: "It was not done. " + explainProblem(err)}, statusOf(err)
		//mutant: case false: //by TestConsoleStaleForms of ./cell
		case form.Seen != q.PostForm.Get("seen"):
			form.Refusal = "It was not done: what the form is about has changed since you loaded it. Read again what it says now."
		default:
			to, err := a.do(ctx, v, q.PostForm)
			if err == nil {
				http.Redirect(w, q, withDone(to, c.doneMark(who.Principal, name)), http.StatusSeeOther)
				return
			}
			form.Refusal, code = outcomeOf(err), statusOf(err)
		}
		c.renderFor(w, code, "act", page{Title: form.Title, Content: form}, who)
	}
}

func outcomeOf(err error) string {
	switch api.CodeOf(err) {
	case api.OK, api.Uncertain, api.DeadlineExceeded, api.SessionExpired: // OK: the error has no code
		return "It is not known whether it was done: look before you do it again. " + explainProblem(err)
	}
	return "It was not done. " + explainProblem(err)
}

func withDone(to, mark string) string {
	if strings.Contains(to, "?") {
		return to + "&done=" + mark
	}
	return to + "?done=" + mark
}

// hidden returns a field that the form returns unchanged.
func hidden(name, value string) actField { return actField{Name: name, Type: "hidden", Value: value} }

// reasonField asks for the reason that clients get when they lose something.
func reasonField(values url.Values) actField {
	return actField{Name: "reason", Label: "Reason", Type: "text", Value: values.Get("reason"), Required: true, Hint: fmt.Sprintf("Those who lose something are told. At most %d bytes.", api.MaxReason)}
}

func breakForm(ctx context.Context, v *visitor, values url.Values) (actForm, error) {
	path, err := api.ParsePath(values.Get("path"))
	if err != nil {
		return actForm{}, err
	}
	title := "Break the lock of " + path.String()
	explained, err := v.cell.Explain(ctx, path.String())
	if err != nil {
		return actForm{Title: title}, err
	}
	return actForm{
		Title: title, Submit: "Break the lock", Danger: true, Back: pageURL("explain", "path", path.String()), Seen: fmt.Sprint(explained.Lock.Generation),
		About: []string{
			heldBy(explained.Lock),
			"The lock is taken from its holders. Their sequencers are invalid at once.",
			"It is free when each of them has released it, or when lease and lock-delay have passed.",
		},
		Fields: []actField{
			hidden("path", path.String()), reasonField(values),
			{Name: "now", Label: "At once, without waiting for the holders: two clients may then believe that they hold it", Type: "checkbox", Value: values.Get("now")},
		},
	}, nil
}

func heldBy(l client.LockInfo) string {
	if len(l.Holders) == 0 {
		return "Nobody holds it now."
	}
	h := l.Holders[0]
	text := fmt.Sprintf("It is held by session %v of %s on %s", h.Session, cmp.Or(h.Principal, "somebody"), cmp.Or(h.Host, "some host"))
	if others := len(l.Holders) - 1 + l.MoreHolders; others > 0 {
		text += fmt.Sprintf(", and by %d others", others)
	}
	return text + "."
}

func breakLock(ctx context.Context, v *visitor, values url.Values) (string, error) {
	path := values.Get("path")
	return pageURL("explain", "path", path), inSession(ctx, v, func(s *client.Client) error {
		return s.BreakLock(ctx, path, values.Get("reason"), values.Get("now") != "")
	})
}

func endForm(ctx context.Context, v *visitor, values url.Values) (actForm, error) {
	id, err := sessionOf(values.Get("session"))
	if err != nil {
		return actForm{}, err
	}
	form := actForm{
		Title: "End session " + id.String(), Submit: "End the session", Danger: true, Back: "/console/sessions/" + id.String(),
		Fields: []actField{hidden("session", id.String()), reasonField(values)},
	}
	info, found, err := v.cell.FindSession(ctx, id)
	switch {
	case err != nil:
		return form, err
	case !found:
		return form, api.Errorf(api.NotFound, "there is no session %v: it has ended, or never was", id)
	case info.Lease > 0:
		form.About = append(form.About, fmt.Sprintf("It is that of %s on %s, process %d, with %d locks and %d handles.", cmp.Or(info.Principal, "somebody"), cmp.Or(info.Host, "some host"), info.PID, info.Locks, info.Handles))
	}
	form.About = append(form.About, "Its client is told, and its calls are refused from now on. What it holds becomes free when it has released that, or when lease and lock-delays have passed.")
	return form, nil
}

func endSession(ctx context.Context, v *visitor, values url.Values) (string, error) {
	id, err := sessionOf(values.Get("session"))
	if err != nil {
		return "", err
	}
	return "/console/sessions", inSession(ctx, v, func(s *client.Client) error { return s.EndSession(ctx, id, values.Get("reason")) })
}

func (c *Console) transferForm(ctx context.Context, v *visitor, values url.Values) (actForm, error) {
	ctx, cancel := context.WithTimeout(ctx, maxStatusTime)
	defer cancel()
	status, err := v.cell.Status(ctx)
	if err != nil {
		return actForm{}, err
	}
	options := []actOption{{"", "the one whose log is furthest"}}
	for _, r := range status.Replicas {
		if r.Err == nil && r.ID != status.Master && r.Healthy {
			options = append(options, actOption{r.ID, r.ID})
		}
	}
	return actForm{
		Title: "Hand the mastership over", Submit: "Hand over", Back: "/console/", Seen: fmt.Sprint(status.Epoch),
		About:  []string{fmt.Sprintf("The master is %s. Another replica takes its place: sessions and locks do not notice, and calls wait for some milliseconds.", cmp.Or(status.Master, "not known"))},
		Fields: []actField{{Name: "to", Label: "To", Type: "select", Value: values.Get("to"), Options: options}},
	}, nil
}

func (c *Console) transfer(ctx context.Context, v *visitor, values url.Values) (string, error) {
	return "/console/", inSession(ctx, v, func(s *client.Client) error {
		_, err := s.Transfer(ctx, values.Get("to"))
		return err
	})
}

type amount struct {
	name, label string
	at          func(n int64)
	is          int64
}

// amounts returns the fields of a quota, in order: all for a principal, two for a directory (with a path).
func amounts(q *api.Quota, path string) []amount {
	list := []amount{
		{"nodes", "Nodes", func(n int64) { q.Nodes = int(n) }, int64(q.Nodes)},
		{"bytes", "Bytes of contents", func(n int64) { q.Bytes = n }, q.Bytes},
	}
	if path != "" {
		return list
	}
	return append(list,
		amount{"sessions", "Sessions", func(n int64) { q.Sessions = int(n) }, int64(q.Sessions)},
		amount{"handles", "Handles", func(n int64) { q.Handles = int(n) }, int64(q.Handles)},
		amount{"waiters", "Waiting requests", func(n int64) { q.Waiters = int(n) }, int64(q.Waiters)},
	)
}

func quotaForm(ctx context.Context, v *visitor, values url.Values) (actForm, error) {
	principal, path := values.Get("principal"), values.Get("path")
	if (principal == "") == (path == "") {
		return actForm{}, api.Errorf(api.InvalidArgument, "name a principal, or a directory")
	}
	form := actForm{
		Title: "Quota of " + cmp.Or(principal, path), Submit: "Set the quota", Back: "/console/quotas",
		About:  []string{"What is used above the quota stays, and nothing can be added. 0 is the default for a principal, and no limit for a directory."},
		Fields: []actField{hidden("principal", principal), hidden("path", path)},
	}
	if path != "" {
		form.Fields = form.Fields[1:]
	} else {
		form.Fields = form.Fields[:1]
	}
	use, found, err := v.cell.FindQuota(ctx, principal, path) // all 0 for a directory without a quota
	if err != nil {
		return form, err
	}
	withheld := path == "" && !found
	if withheld {
		form.About = append(form.About, "What it is now, only operators may see.")
	}
	for _, a := range amounts(&use.Allowed, path) {
		is := ""
		if !withheld {
			is = strconv.FormatInt(a.is, 10)
		}
		form.Seen += is + " "
		form.Fields = append(form.Fields, actField{Name: a.name, Label: a.label, Type: "number", Value: cmp.Or(values.Get(a.name), is), Required: true})
	}
	return form, nil
}

func setQuota(ctx context.Context, v *visitor, values url.Values) (string, error) {
	var q api.Quota
	for _, a := range amounts(&q, values.Get("path")) {
		text := values.Get(a.name)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return "", api.Errorf(api.InvalidArgument, "%s: %.40q is no number from 0 on", a.label, text)
		}
		a.at(n)
	}
	return "/console/quotas", inSession(ctx, v, func(s *client.Client) error {
		if path := values.Get("path"); path != "" {
			return s.SetDirectoryQuota(ctx, path, q.Nodes, q.Bytes)
		}
		return s.SetPrincipalQuota(ctx, values.Get("principal"), q)
	})
}
