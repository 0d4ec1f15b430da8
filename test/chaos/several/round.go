package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// patience bounds the wait for a whole cluster; only what is wrong takes it. Emulated machines
// have more.
var patience = 2 * time.Minute

type outcome struct {
	faults, acknowledged, unknown int
	// reads are those that were answered, and right after a write through another server.
	reads int
	// events are what listeners were told.
	events int
	// full are the servers that ended of a full disk.
	full                 int
	healing              time.Duration
	violations, timeline []string
}

// journal is what clients were told in a round.
type journal struct {
	mu    sync.Mutex
	start time.Time
	told
	outcome
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.timeline = append(j.timeline, fmt.Sprintf("%6.2f ", time.Since(j.start).Seconds())+fmt.Sprintf(format, args...))
}

func (j *journal) violate(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.violations = append(j.violations, fmt.Sprintf(format, args...))
}

// play plays one round.
func (c *cluster) play(ctx context.Context, chance *rand.Rand, seed uint64, length time.Duration) outcome {
	c.deck = nil // a seed is the same round, whichever came before
	j := &journal{start: time.Now(), told: told{made: map[string]bool{}}}
	space := fmt.Sprint("round-", seed, "-", j.start.Unix())
	if err := until(ctx, func(ctx context.Context) error {
		_, err := c.servers[0].client.CoreV1().Namespaces().Create(
			ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{},
		)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}); err != nil {
		j.violations = append(j.violations, "the round could not begin: "+err.Error())
		return j.outcome
	}
	acting, over := context.WithTimeout(ctx, length)
	defer over()
	var clients sync.WaitGroup
	for n, s := range c.servers {
		clients.Go(func() { j.create(acting, s.client, space, n) })
		clients.Go(func() { j.count(acting, s.client, space) })
		clients.Go(func() { j.read(acting, s.client, c.servers[(n+1)%len(c.servers)].client, space, n) })
	}
	hearing, heard := context.WithCancel(ctx)
	defer heard()
	var listeners []*listener
	var listening sync.WaitGroup
	for n, s := range c.servers {
		for _, k := range kinds {
			l := &listener{name: "who listened to " + k.name + " first at " + s.name, kind: k}
			listeners = append(listeners, l)
			listening.Go(func() { l.listen(hearing, c.servers, n, space) })
		}
	}
	for acting.Err() == nil {
		c.strike(acting, chance, j)
	}
	clients.Wait()
	c.heal()
	healed := time.Now()
	j.judge(ctx, c, space)
	j.hearEnd(ctx, c, space, listeners)
	heard()
	listening.Wait()
	j.healing = time.Since(healed)
	return j.outcome
}

// fault is something that can go wrong with a server, and its end.
type fault struct {
	what   string
	do, un func() error
}

// strike does one thing that goes wrong, to its end.
func (c *cluster) strike(ctx context.Context, chance *rand.Rand, j *journal) {
	name, lasts := c.servers[chance.IntN(len(c.servers))].name, c.pace+time.Duration(chance.Int64N(int64(9*c.pace)))
	kinds := slices.DeleteFunc(c.kinds(ctx, name, j), func(k fault) bool { return !strings.Contains(k.what, c.faults) })
	if len(c.deck) == 0 {
		c.deck = chance.Perm(len(kinds))
	}
	k := kinds[c.deck[0]]
	c.deck = c.deck[1:]
	j.note("%s: %s for %.1f s", name, k.what, lasts.Seconds())
	if err := k.do(); err != nil {
		j.note("%s: %s: %v", name, k.what, err)
		lasts = time.Second // between two lives of its process
	} else {
		j.faults++
	}
	sleep(ctx, lasts)
	if err := k.un(); err != nil {
		j.note("%s: end of %s: %v", name, k.what, err)
	}
	sleep(ctx, time.Duration(chance.Int64N(int64(2*time.Second))))
}

// create makes one object after another: of a kind that is kept the library's way, and of
// one that is kept in ours, in turn.
func (j *journal) create(ctx context.Context, client kubernetes.Interface, space string, who int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("made-%d-%d", who, n)
		meta := metav1.ObjectMeta{Name: name}
		var err error
		if n%2 == 0 {
			_, err = client.CoreV1().ConfigMaps(space).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		} else {
			err = lease(ctx, client, space, meta)
		}
		j.mu.Lock()
		if err == nil {
			j.made[name] = true
			j.acknowledged++
		} else {
			j.unknown++
		}
		j.mu.Unlock()
		sleep(ctx, 20*time.Millisecond)
	}
}

// lease makes a Lease, and changes it once: whether that worked shows in what is told of it.
func lease(ctx context.Context, client kubernetes.Interface, space string, m metav1.ObjectMeta) error {
	leases := client.CoordinationV1().Leases(space)
	made, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: m}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Labels = map[string]string{"changed": "once"}
	_, _ = leases.Update(ctx, made, metav1.UpdateOptions{})
	return nil
}

// count adds one to a number that all share: an acknowledged addition that is lost, or was
// done on an old number, shows.
func (j *journal) count(ctx context.Context, client kubernetes.Interface, space string) {
	objects := client.CoreV1().ConfigMaps(space)
	for ; ctx.Err() == nil; sleep(ctx, 20*time.Millisecond) {
		now, err := objects.Get(ctx, "counter", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, _ = objects.Create(
				ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}, Data: map[string]string{"n": "0"}},
				metav1.CreateOptions{},
			)
			continue
		}
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(now.Data["n"])
		if err != nil {
			continue
		}
		now.Data["n"] = strconv.Itoa(n + 1)
		_, err = objects.Update(ctx, now, metav1.UpdateOptions{})
		j.mu.Lock()
		switch {
		case err == nil:
			j.counted++
			j.tried++
			j.acknowledged++
		case !apierrors.IsConflict(err): // whether it was done is not known
			j.tried++
			j.unknown++
		}
		j.mu.Unlock()
	}
}

// read reads through one server what was acknowledged by another: a list that is asked for after
// that must have it.
func (j *journal) read(ctx context.Context, by, through kubernetes.Interface, space string, who int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("read-%d-%d", who, n)
		label := map[string]string{"read": name}
		_, err := by.CoreV1().ConfigMaps(space).Create(
			ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: label}}, metav1.CreateOptions{},
		)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		list, err := through.CoreV1().ConfigMaps(space).List(ctx, metav1.ListOptions{LabelSelector: "read=" + name})
		j.mu.Lock()
		j.made[name] = true
		j.acknowledged++
		if err == nil {
			j.reads++
			if len(list.Items) != 1 {
				j.violations = append(j.violations, fmt.Sprintf(
					"%s was acknowledged by server %d, and a list that was asked for after that through the next one lacks it",
					name, who+1,
				))
			}
		}
		j.mu.Unlock()
		sleep(ctx, 200*time.Millisecond)
	}
}

// judge compares what clients were told with what each server has. What was acknowledged
// must be there at once; a write without an answer may still land, between two looks.
func (j *journal) judge(ctx context.Context, c *cluster, space string) {
	end := time.Now().Add(patience)
	for {
		all := map[string]holding{}
		for _, s := range c.servers {
			has, err := look(ctx, s, space)
			if err != nil {
				j.violations = append(j.violations, fmt.Sprintf(
					"%s is not well %v after all faults ended: %v", s.name, patience, err,
				))
				return
			}
			all[s.name] = has
		}
		lost, different := j.lost(all), differences(all)
		if len(lost) == 0 && len(different) > 0 && time.Now().Before(end) && ctx.Err() == nil {
			sleep(ctx, time.Second)
			continue
		}
		j.violations = append(append(j.violations, lost...), different...)
		return
	}
}

func look(ctx context.Context, s server, space string) (has holding, err error) {
	err = until(ctx, func(ctx context.Context) error {
		if err := s.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		list, err := s.client.CoreV1().ConfigMaps(space).List(ctx, metav1.ListOptions{})
		has = holding{}
		for _, m := range list.Items {
			has[m.Name] = m.ResourceVersion + " " + m.Data["n"]
		}
		if err != nil {
			return err
		}
		leases, err := s.client.CoordinationV1().Leases(space).List(ctx, metav1.ListOptions{})
		for _, l := range leases.Items {
			has[l.Name] = l.ResourceVersion + " "
		}
		return err
	})
	return has, err
}

// holding is what a server has: the version and the number of each object.
type holding map[string]string

// told is what clients were told: whose creation was acknowledged, how many additions to a
// counter were, and how many may have been done.
type told struct {
	made           map[string]bool
	counted, tried int
}

// lost are the acknowledged writes that a server lacks.
func (t told) lost(all map[string]holding) (violations []string) {
	for _, server := range slices.Sorted(maps.Keys(all)) {
		has := all[server]
		for _, name := range slices.Sorted(maps.Keys(t.made)) {
			if has[name] == "" {
				violations = append(violations, fmt.Sprintf("%s lacks %s, whose creation was acknowledged", server, name))
			}
		}
		var version, n int
		if _, err := fmt.Sscan(has["counter"], &version, &n); t.counted > 0 && (err != nil || n < t.counted || n > t.tried) {
			violations = append(violations, fmt.Sprintf(
				"%s has counted to %d; %d additions were acknowledged, and %d tried", server, n, t.counted, t.tried,
			))
		}
	}
	return violations
}

// differences are between what the servers have.
func differences(all map[string]holding) (violations []string) {
	names := slices.Sorted(maps.Keys(all))
	for _, server := range names {
		has, first := all[server], all[names[0]]
		if len(has) != len(first) {
			violations = append(violations, fmt.Sprintf("%s has %d objects, %s %d", server, len(has), names[0], len(first)))
		}
		for name, what := range has {
			if first[name] != what {
				violations = append(violations, fmt.Sprintf("%s has %s as %q, %s as %q", server, name, what, names[0], first[name]))
			}
		}
	}
	return violations
}

func until(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
