package survey

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// Set is one DaemonSet and what belongs to it.
type Set struct {
	DaemonSet *appsv1.DaemonSet
	// Revision is that of its present template, with the content that its rollout leads to where content is a part of
	// revisions. Numbers are those of all its revisions by name. Stored tells that there is a ControllerRevision of the
	// template.
	Revision string
	Numbers  map[string]int64
	Stored   bool
	// Policy is the one that counts, nil if none does, and Rollout the rollout's object, nil if there is none.
	Policy  *v1alpha1.RolloutPolicy
	Rollout *v1alpha1.DaemonSetRollout

	survey *Survey
	// revisions are those that are stored, present is that of the present template.
	revisions []*appsv1.ControllerRevision
	present   *appsv1.ControllerRevision
	// content is the ID of the content of Revision, "" where that is a template alone; hindered why it cannot be
	// followed, "" if it can; unread what may not be read of it. works is what it was worked out to be, nil if it was not.
	content, hindered, unread string
	works                     *content.Content
	// variants are those that it has now; nil for none.
	variants *variant.Set
	// templates are those of stored revisions, molds the variants on a revision's template, that somebody asked for.
	templates map[string]*corev1.PodTemplateSpec
	molds     map[string]*variant.Molds
}

// Set finds what belongs to a DaemonSet.
func (s *Survey) Set(ds *appsv1.DaemonSet) (*Set, error) {
	set := &Set{
		DaemonSet: ds, Numbers: map[string]int64{}, survey: s, Rollout: s.Rollout(ds),
		templates: map[string]*corev1.PodTemplateSpec{}, molds: map[string]*variant.Molds{},
	}
	for _, r := range s.Revisions {
		if belongings.OwnerOf(r) == ds.UID {
			set.revisions = append(set.revisions, r)
			set.Numbers[history.HashOf(r)] = r.Revision
		}
	}
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(ds), Revisions: set.revisions})
	if err != nil {
		return nil, err
	}
	set.present = plan.Current
	if plan.Current == nil {
		set.present = plan.Create
		set.Numbers[history.HashOf(plan.Create)] = plan.Create.Revision
	}
	set.Revision, set.Stored = history.HashOf(set.present), plan.Current != nil
	if !belongings.StrategyOf(ds).OnDelete { // else it is not asked
		set.Policy = s.Policy(ds)
	}
	set.addContent()
	return set, set.addVariants()
}

// stands is where the rollout stands; zero if there is none.
func (s *Set) stands() *v1alpha1.DaemonSetRolloutStatus {
	if s.Rollout == nil {
		return &v1alpha1.DaemonSetRolloutStatus{}
	}
	return &s.Rollout.Status
}

// Project is what the row is told of a pod. Where content is no part of revisions it has that of its template.
func (s *Set) Project(p *corev1.Pod) fact.Pod {
	info := fact.OfPod(p, s.DaemonSet.UID)
	info.Point(p)
	info.Resize(p)
	info.Fetch = s.fetched(p)
	if s.content == "" {
		info.Revision = content.TemplateOf(info.Revision)
	}
	return info
}

// fetched is what is known of a pod's images. Where pods that fetch are refused, or do not pull, all nodes count as
// asked, as in the controller: since the step under way began.
func (s *Set) fetched(p *corev1.Pod) fetch.Report {
	said, st := s.survey.fetched(p), s.stands()
	if !st.FetchesByPods() || st.StepStarted == nil || said.Revision == st.TargetRevision {
		return said
	}
	hinders := st.Fetch.Message
	if hinders == "" || hinders == fetchpod.LeftOut(&s.Template(st.TargetRevision).Spec) {
		return said
	}
	return fetch.Report{Revision: st.TargetRevision, At: st.StepStarted.UTC(), Why: hinders}
}

// Template is the pod template of a revision, the present one if it cannot be read.
func (s *Set) Template(hash string) *corev1.PodTemplateSpec {
	hash = content.TemplateOf(hash)
	if t := s.templates[hash]; t != nil {
		return t
	}
	for _, r := range s.revisions {
		if history.HashOf(r) != hash || r == s.present {
			continue
		}
		if t, err := history.Template(r); err == nil {
			s.templates[hash] = t
			return t
		}
	}
	return &s.DaemonSet.Spec.Template
}

// Pods are the DaemonSet's pods on the node, the newest last.
func (s *Set) Pods(name string) []*corev1.Pod {
	return byAge(s.survey.byOwner[s.DaemonSet.UID][name])
}

// info is what the row is told of the DaemonSet.
func (s *Set) info() fact.DaemonSet {
	ds := s.DaemonSet
	digest, _ := history.Digest(s.present) // "" of what cannot be read, as in the controller
	switch st := s.stands(); {
	case s.content != "" && st.TargetRevision == s.Revision:
		digest = st.TargetDigest
	case s.works != nil && s.works.ID == s.content:
		digest = contents.Digest(digest, s.works.Digest)
	}
	live, _ := s.Live()
	_, more := fetch.Images(&ds.Spec.Template.Spec)
	return fact.DaemonSet{
		UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name, Generation: ds.Generation,
		Revision: s.Revision, Digest: digest, Live: live, Renamed: s.renamed(),
		Placement: placement.Compile(&ds.Spec.Template.Spec).Starting(s.survey.starts(ds.Namespace, ds.Name)),
		Earlier:   belongings.PlacementsOf(slices.Values(s.revisions)),
		Strategy:  belongings.StrategyOf(ds), MinReadySeconds: ds.Spec.MinReadySeconds, MoreImages: more,
		Reported: fact.StatusOf(&ds.Status), Conditions: fact.ConditionsOf(&ds.Status),
	}
}

// Core is what decides in the controller, with one DaemonSet in it: its row, and the book of what the row follows.
type Core struct {
	*matrix.Matrix
	Book *rollouts.Book
	// Variants is the book of variants before it; nil where the DaemonSet has nothing to do with them.
	Variants *variants.Book
	// Follows is what the book has told the row to follow, nil if its own strategy counts.
	Follows *fact.Rollout

	// hindered is why the content of its policy cannot be followed; "" if it can.
	hindered string
}

// Step takes in what the book says, and hands it on. A policy whose content cannot be followed is not.
func (c *Core) Step(e matrix.Event) {
	switch is := e.(type) {
	case fact.Rollout:
		if c.hindered != "" && is.Policy != nil {
			is.Policy, is.Following, is.Why = nil, course.Lost, c.hindered
		}
		c.Follows, e = &is, is
	case fact.RolloutGone:
		c.Follows = nil
	}
	if c.Variants != nil {
		c.Variants.Step(e)
		return
	}
	c.Matrix.Step(e)
}

// Keeps reports that no copies of content are there: what is foretold deletes none.
func (c *Core) Keeps(types.UID) bool { return false }

// Left says that none stays.
func (c *Core) Left(types.UID) string { return "" }

// Settle has the book of variants work out what follows from what it was told. What it wants stored counts as stored.
func (c *Core) Settle() {
	if c.Variants == nil {
		return
	}
	c.Variants.Settle()
	for _, j := range c.Variants.Jobs() {
		c.Variants.TellResult(variants.Result{Job: j, Made: j.Make})
	}
	c.Variants.Settle()
}

// Core returns a core that has been told all that was read, and has not decided anything yet. Its nodes can be asked
// for images, unless the rollout says that the controller asks none.
func (s *Set) Core(cfg row.Config) *Core {
	cfg.Fetches = s.stands().Fetches()
	c := s.surroundings(cfg)
	s.begin(c, s.info())
	return c
}

// surroundings is a core that knows what the DaemonSet follows, and neither its pods nor itself.
func (s *Set) surroundings(cfg row.Config) *Core {
	all := s.survey
	cfg.Foretells = true
	cfg.FetchPods = cfg.Fetches && s.stands().FetchesByPods()
	c := &Core{Matrix: matrix.New(cfg), hindered: s.hindered}
	c.Book = rollouts.New(c, all.Locate)
	c.Step(fact.Now{Time: all.Now})
	for _, n := range all.Nodes {
		c.Step(fact.OfNode(n))
		c.Step(fact.HealthOf(n))
	}
	s.tell(c.Book)
	return c
}

// tell tells a book all that says what the DaemonSet follows.
func (s *Set) tell(b *rollouts.Book) {
	all, ds := s.survey, s.DaemonSet
	b.Step(rollouts.Now{Time: all.Now})
	for _, p := range all.Policies {
		if p.UID == "" { // not stored: it comes with the manifests of a plan
			p = p.DeepCopy()
			p.UID = types.UID("new/" + p.Name)
		}
		b.Step(rollouts.Policy{Object: p})
	}
	for _, r := range all.Rollouts {
		if r.Namespace == ds.Namespace && r.Name == ds.Name { // also one that another DaemonSet has left: what failed counts
			b.Step(rollouts.Rollout{Object: r})
		}
	}
	b.Step(rollouts.DaemonSet{Object: ds})
}

// unled reports whether the rollout is where it was left, since no policy of it is there to be read.
func (s *Set) unled() bool {
	c := &Core{Matrix: matrix.New(row.Config{})}
	c.Book = rollouts.New(c, s.survey.Locate)
	s.tell(c.Book)
	return c.Follows != nil && c.Follows.Policy == nil
}

// LeaveContent has content be no part of its revisions any more, if it was while its policy was gone and the core
// follows nothing by now. It tells the core of the DaemonSet; that of the pods is left to the caller.
func (s *Set) LeaveContent(c *Core) bool {
	if s.content == "" || c.Follows != nil {
		return false
	}
	s.content, s.Revision = "", content.WithoutContent(s.Revision)
	row := s.info()
	if c.Variants != nil {
		row.Revision = content.WithVariants(row.Revision, "") // the book adds them
	}
	c.Step(row)
	return true
}

// begin adds the row. Pods that are there before it are judged once, with it.
func (s *Set) begin(c *Core, row fact.DaemonSet) {
	if b := s.vary(c); b != nil {
		c.Variants = b
		s.beginVaried(c, row)
		return
	}
	for _, pods := range s.survey.byOwner[row.UID] {
		for _, p := range pods {
			c.Step(s.Project(p))
		}
	}
	c.Step(row)
}
