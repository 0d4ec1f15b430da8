package row

import (
	"time"
)

// Config sets the limits. The zero value of a field means its default.
type Config struct {
	// BurstReplicas bounds the creations, and separately the deletions, of one row that are in flight. Default 250.
	BurstReplicas int
	// ExpectationsTimeout is how long a cell waits for the event that shows its action done. Default 5 minutes.
	ExpectationsTimeout time.Duration
	// SeenTimeout is how long a cell waits to see a pod that was created. After that it creates the pod again by the same
	// name, and so learns whether it still is: one that went before a watch was read again is never seen. Default 10 s.
	SeenTimeout time.Duration
	// FailedPodBackoff and MaxFailedPodBackoff are the shortest and longest time
	// between two deletions of failed pods on one node. Default 1 s and 15 min.
	FailedPodBackoff, MaxFailedPodBackoff time.Duration
	// RetryDelay and MaxRetryDelay are the shortest and longest pause after a failed action. Default 5 ms and 30 s.
	RetryDelay, MaxRetryDelay time.Duration
	// StatusInterval is the least time between two writes of one status while it changes. A new generation does not
	// wait, nor the first status in it that says "all done". Default 200 ms.
	StatusInterval time.Duration
	// StallAfter is how long, beyond minReadySeconds, a rollout may come no
	// further before its status says that it does not progress. Default 1 minute.
	StallAfter time.Duration
	// Foretells is for a core that acts on nothing, and says what a controller does that has watched the nodes
	// for long. One that has just begun leaves daemons time that may be about to become available again.
	Foretells bool
	// Guest: another controller makes the pods, each of the newest revision unless admission gives it its node's, and
	// tidies up. Pods are deleted in their node's turn of a rollout, and nothing else is done.
	Guest bool
	// Fetches: nodes can be asked to fetch images before their turn. FetchPods: pods ask them, and no agent does.
	Fetches   bool `json:",omitempty"`
	FetchPods bool `json:",omitempty"`
}

// WithDefaults sets what is not.
func (c Config) WithDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.BurstReplicas == 0 {
		c.BurstReplicas = 250
	}
	set(&c.ExpectationsTimeout, 5*time.Minute)
	set(&c.SeenTimeout, 10*time.Second)
	set(&c.FailedPodBackoff, time.Second)
	set(&c.MaxFailedPodBackoff, 15*time.Minute)
	set(&c.RetryDelay, 5*time.Millisecond)
	set(&c.MaxRetryDelay, 30*time.Second)
	set(&c.StatusInterval, 200*time.Millisecond)
	set(&c.StallAfter, time.Minute)
	return c
}

// backoff is base doubled once per failure after the first, at most limit.
func backoff(base, limit time.Duration, failures int) time.Duration {
	d := base
	for i := 1; i < failures && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}
