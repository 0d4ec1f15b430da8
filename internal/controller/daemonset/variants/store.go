package variants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// Label is the label of a ControllerRevision that holds variants: their ID.
const Label = "everynode.io/variants"

// linger is how long variants that nobody needs are kept: what is stable may be another by then.
const linger = 2 * time.Minute

// stored is what such a ControllerRevision holds.
type stored struct {
	Variants json.RawMessage `json:"variants"`
}

func contentsDigest(template, variants string) string { return contents.Digest(template, variants) }

// IsStored reports whether a ControllerRevision holds variants, and is no history of a DaemonSet's templates.
func IsStored(r *appsv1.ControllerRevision) bool { return r.Labels[Label] != "" }

// TellStored takes in a ControllerRevision that holds variants, or that it is gone. What does not hold what its label
// says counts as none.
func (b *Book) TellStored(r *appsv1.ControllerRevision, gone bool) {
	delete(b.stored, r.UID)
	if !gone {
		b.stored[r.UID] = r
	}
	for uid, s := range b.sets {
		if s.object == nil || s.object.Namespace != r.Namespace {
			continue
		}
		k := s.known[r.Labels[Label]]
		switch {
		case gone && k != nil && k.stored != nil && k.stored.UID == r.UID:
			k.stored, b.dirty[uid] = nil, true
		case !gone && b.learn(s, r):
			b.dirty[uid] = true
		}
	}
}

// learn takes in what is stored, if it is of the DaemonSet.
func (b *Book) learn(s *set, r *appsv1.ControllerRevision) bool {
	id := r.Labels[Label]
	if s.object.Namespace != r.Namespace || NameOf(s.object, id) != r.Name {
		return false
	}
	is, err := Read(r, id)
	if err != nil {
		return false
	}
	if k := s.known[id]; k != nil {
		k.stored = r
	} else {
		s.known[id] = &known{Set: is, stored: r}
	}
	return true
}

// maxName leaves room for an ID behind the name of a DaemonSet.
const maxName = 200

// Read returns the variants that a ControllerRevision holds. What are not those of the ID is an error.
func Read(r *appsv1.ControllerRevision, id string) (*variant.Set, error) {
	var held stored
	err := json.Unmarshal(r.Data.Raw, &held)
	if err != nil {
		return nil, fmt.Errorf("read ControllerRevision %s: %w", r.Name, err)
	}
	is, err := variant.Read(held.Variants)
	if err != nil {
		return nil, fmt.Errorf("read ControllerRevision %s: %w", r.Name, err)
	}
	if is == nil || is.ID != id {
		return nil, fmt.Errorf("ControllerRevision %s does not hold the variants %s", r.Name, id)
	}
	return is, nil
}

// NameOf is the name of the ControllerRevision that holds variants of a DaemonSet.
func NameOf(ds *appsv1.DaemonSet, id string) string {
	return plaintext.ShortName(ds.Name, maxName) + "-variants-" + id
}

// Job is what is to be written for one DaemonSet.
type Job struct {
	DaemonSet *appsv1.DaemonSet
	// Make are variants to store, Delete those that nobody needs.
	Make, Delete []*appsv1.ControllerRevision
}

// Result is what became of a job, as far as it got.
type Result struct {
	Job           *Job
	Made, Deleted []*appsv1.ControllerRevision
	// Why says what hindered it; "" if nothing did.
	Why string
}

// setsThat returns, in order, the DaemonSets that stay and for which something holds: most have no variants, and they
// are asked about each time anything happens.
func (b *Book) setsThat(holds func(*set) bool) (out []types.UID) {
	for uid, s := range b.sets {
		if s.object != nil && s.object.DeletionTimestamp == nil && holds(s) {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// Jobs returns what is to be done now, each once: it is under way until its result is told.
func (b *Book) Jobs() (jobs []*Job) {
	for _, uid := range b.setsThat(func(s *set) bool {
		return !s.job.busy && len(s.known) > 0 && !s.job.again.After(b.now)
	}) {
		s := b.sets[uid]
		if j := b.plan(uid, s); j != nil {
			s.job.busy = true
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (b *Book) plan(uid types.UID, s *set) *Job {
	j := &Job{DaemonSet: s.object}
	needed := b.needed(uid, s)
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		k := s.known[id]
		switch {
		case needed[id]:
			k.unwanted = time.Time{}
			if k.stored == nil {
				if r := s.revisionOf(k.Set); r != nil {
					j.Make = append(j.Make, r)
				}
			}
		case k.unwanted.IsZero():
			k.unwanted = b.now
		case k.unwanted.Add(linger).After(b.now):
		case k.stored == nil:
			delete(s.known, id)
		default:
			j.Delete = append(j.Delete, k.stored)
		}
	}
	if len(j.Make)+len(j.Delete) == 0 {
		b.moved = b.moved || s.why != ""
		s.why = "" // nobody needs any more what could not be stored or deleted
		return nil
	}
	return j
}

// needed are the variants that somebody may need: those of the newest revision, the stable one and the target, and
// what pods were passed on with.
func (b *Book) needed(uid types.UID, s *set) map[string]bool {
	out := map[string]bool{}
	names := append(slices.Collect(maps.Keys(s.names)), b.makes(uid)...)
	if s.told != nil {
		names = append(names, s.told.Revision)
	}
	for _, name := range names {
		out[variantsOf(name)] = true
	}
	if s.newest != nil {
		out[s.newest.ID] = true
	}
	return out
}

// inOrder is JSON with all keys in order, as whoever merges a patch into it writes it again: what a revision holds must
// be the same then, byte for byte, or nobody can change its owners.
func inOrder(of any) ([]byte, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("write what is to be stored: %w", err)
	}
	var plain any
	read := json.NewDecoder(bytes.NewReader(text))
	read.UseNumber()
	if err := read.Decode(&plain); err != nil {
		return nil, fmt.Errorf("read what is to be stored: %w", err)
	}
	return json.Marshal(plain)
}

// revisionOf is what stores variants. It has no controller, so that it is in nobody's history, and goes with the
// DaemonSet.
func (s *set) revisionOf(of *variant.Set) *appsv1.ControllerRevision {
	text, err := of.Text()
	if err != nil {
		return nil // it was read from JSON
	}
	data, err := inOrder(stored{text})
	if err != nil {
		return nil
	}
	owner := *metav1.NewControllerRef(s.object, belongings.Kind)
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.object.Namespace, Name: NameOf(s.object, of.ID),
			Labels: map[string]string{Label: of.ID}, OwnerReferences: []metav1.OwnerReference{owner}},
		Data: runtime.RawExtension{Raw: data},
	}
}

// TellResult takes in what became of a job.
func (b *Book) TellResult(r Result) {
	for _, made := range r.Made {
		b.TellStored(made, false)
	}
	for _, gone := range r.Deleted {
		b.TellStored(gone, true)
	}
	s := b.sets[r.Job.DaemonSet.UID]
	if s == nil {
		return
	}
	for _, asked := range r.Job.Make {
		if k := s.known[asked.Labels[Label]]; r.Why == "" && k != nil && k.stored == nil {
			r.Why = fmt.Sprintf("its variants cannot be stored: ControllerRevision %s holds something else", asked.Name)
		}
	}
	b.dirty[r.Job.DaemonSet.UID], b.moved = true, true
	s.job.busy, s.why = false, r.Why
	if r.Why == "" {
		s.job.failures, s.job.again = 0, time.Time{}
		return
	}
	s.job.failures++
	s.job.again = b.now.Add(min(time.Second<<min(s.job.failures, 6), time.Minute))
}

// times are when something is to be done for the DaemonSet by time alone.
func (s *set) times() (out []time.Time) {
	out = append(append(out, s.job.again), s.trials.times()...)
	for _, k := range s.known {
		if !k.unwanted.IsZero() {
			out = append(out, k.unwanted.Add(linger))
		}
	}
	return out
}

// settle finds out which variants the DaemonSet has now, and passes that on.
func (b *Book) settle(uid types.UID, s *set) {
	if b.find(uid, s) {
		b.moved = true
		b.tell(uid, s)
	}
}

// find finds out which variants the DaemonSet has now; false if variants have nothing to do with it.
func (b *Book) find(uid types.UID, s *set) bool {
	had, newest := s.newest, s.newest
	if s.version != b.version {
		var err error
		s.refused = ""
		newest, err = b.choose(s)
		if err != nil {
			newest, s.refused = had, "nothing of its variants changes: "+err.Error()
		}
		s.settled = s.settled || err == nil
		if had != nil && newest != nil && had.ID == newest.ID {
			newest = had
		}
	}
	s.newest, s.version = newest, b.version
	if newest != nil && s.known[newest.ID] == nil {
		s.known[newest.ID] = &known{Set: newest}
	}
	if newest == nil && had == nil && s.refused == "" && !s.concerned() {
		return false
	}
	b.concern(uid, s)
	return true
}
