package client

import "strings"

// heardBy returns why no replica answers as the master, in few words: each reason once. "" if a master is
// known.
func heardBy(l *locator) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.master != nil {
		return ""
	}
	var reasons []string
	from := map[string][]string{}
	for _, a := range l.lastAnswers {
		reason := "knows of no master"
		switch {
		case a.err != nil:
			reason = brief(a.err)
		case a.reply.GetMaster() != "":
			reason = "believes that " + a.reply.GetMaster() + " is the master"
		}
		if from[reason] == nil {
			reasons = append(reasons, reason)
		}
		from[reason] = append(from[reason], a.address)
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(from[reason], ", ") + ": " + reason
	}
	return strings.Join(reasons, "; ")
}
