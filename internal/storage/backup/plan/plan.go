// Package plan decides when the next backup is due, and which old ones go.
package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// stamp is how the time of a backup stands in its name. Names are in the order of time.
const stamp = "20060102T150405Z"

var nameForm = regexp.MustCompile(`^everynode-(\d{8}T\d{6}Z)-r\d+-([0-9a-f]{8})\.backup$`)

// Name is that of a backup of a cluster, a time and a revision. Of the cluster's ID, which
// is a UUID, it has the beginning.
func Name(cluster string, created time.Time, revision int64) string {
	return fmt.Sprintf("everynode-%s-r%d-%.8s.backup", created.UTC().Format(stamp), revision, cluster)
}

// Of are the names of a cluster's backups. Those of another one at the same place must
// neither go for its own, nor pass for them.
func Of(cluster string, names []string) (out []string) {
	for _, name := range names {
		if found := nameForm.FindStringSubmatch(name); found != nil && strings.HasPrefix(cluster, found[2]) {
			out = append(out, name)
		}
	}
	return out
}

// Created tells from a name when a backup was made. What has another name is somebody else's.
func Created(name string) (time.Time, bool) {
	found := nameForm.FindStringSubmatch(name)
	if found == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(stamp, found[1])
	return at, err == nil
}

// Newest is when the newest of the backups was made; the zero time if there is none.
func Newest(names []string) (newest time.Time) {
	for _, name := range names {
		if at, ok := Created(name); ok && at.After(newest) {
			newest = at
		}
	}
	return newest
}

// Expired are the backups that go when keep stay, among them always the one of the name
// last, which is known to be good. One that is of the future, by a clock that was wrong,
// counts as old: it must not push out those that are newer.
func Expired(names []string, last string, keep int, now time.Time) (gone []string) {
	var ours []string
	for _, name := range names {
		if _, ok := Created(name); ok && name != last {
			ours = append(ours, name)
		}
	}
	future := func(name string) int {
		if at, _ := Created(name); at.After(now.Add(time.Minute)) {
			return 1
		}
		return 0
	}
	slices.SortFunc(ours, func(a, b string) int {
		if fa, fb := future(a), future(b); fa != fb {
			return fa - fb
		}
		return strings.Compare(b, a) // the newest first
	})
	if stay := keep - 1; stay < len(ours) {
		gone = ours[max(0, stay):]
	}
	return gone
}

// Wait is how long it is until the next backup. A newest one of the future says nothing.
func Wait(newest, now time.Time, every time.Duration) time.Duration {
	if newest.IsZero() || newest.After(now.Add(time.Minute)) {
		return 0
	}
	return max(0, newest.Add(every).Sub(now))
}

// How long it is until a backup is tried again that has failed.
const (
	firstRetry   = 30 * time.Second
	longestRetry = 15 * time.Minute
)

// Retry is how long it is until the next try after so many failures.
func Retry(failures int, every time.Duration) time.Duration {
	pause := firstRetry
	for range failures - 1 {
		if pause *= 2; pause >= longestRetry {
			pause = longestRetry
			break
		}
	}
	return min(pause, every)
}
