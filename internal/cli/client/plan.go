package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubectlutil "k8s.io/kubectl/pkg/util"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/registry/daemonset"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/plan"
	"github.com/everynode/everynode/internal/change/plan/starting"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/cli/command"
)

// changesFound is the exit code of a plan in which something would change.
const changesFound command.ExitCode = 2

func newPlanCommand(plugin bool) *cobra.Command {
	var at *cluster
	var file, output string
	var deleted []string
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Say what applying DaemonSets would do, and do nothing",
		Long: `Say what "kubectl apply -f FILE" would do to DaemonSets: which fields, and which keys of
their ConfigMaps and Secrets, change, which nodes change, in which steps, what has no
room, and how long it takes. Of DaemonSetVariants also which nodes get which, and what
their pods request then; with --delete also when one is deleted. Of NodeStartups which
nodes would follow them, and what these would wait for in vain. Nothing is written: the
server is only asked to try (dry run) what it would store.

The exit code is 0 if nothing would happen before somebody approves, resumes or
deletes something, 2 if something would, 1 after an error. It works on any
Kubernetes. docs/plan.md explains what is shown, and the JSON.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && len(deleted) == 0 {
				return errors.New("no file is named; use -f FILE, or -f - for standard input")
			}
			if output != "" && output != "json" && output != "yaml" {
				return fmt.Errorf("--output %s is not known; use json or yaml, or leave it out", output)
			}
			documents, err := readManifests(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			l, err := at.read()
			if err != nil {
				return err
			}
			err = documents.addDeletions(deleted, l.namespace)
			if err != nil {
				return err
			}
			p, err := l.plan(cmd.Context(), documents)
			if err != nil {
				return err
			}
			return p.show(cmd.OutOrStdout(), output)
		},
	}
	at = addClusterFlags(cmd, plugin)
	f := cmd.Flags()
	f.StringVarP(&file, "filename", "f", "",
		"file with DaemonSets, RolloutPolicies, DaemonSetVariants, NodeStartups, ConfigMaps and Secrets as YAML or JSON, "+
			"more than one document if wanted; - for standard input")
	f.StringArrayVar(&deleted, "delete", nil,
		"daemonsetvariant/NAME that would be deleted, beside what the file says or alone; may be given more than once")
	f.StringVarP(&output, "output", "o", "", "json or yaml for programs; else text for people")
	return cmd
}

// plans is what would happen to all DaemonSets of a file.
type plans struct {
	DaemonSets []*plan.Forecast `json:"daemonSets"`
	// NodeStartups are those of the file.
	NodeStartups []*starting.Forecast `json:"nodeStartups,omitempty"`
	// Direct says which pods changes of ConfigMaps and Secrets reach past all steps.
	Direct []string `json:"direct,omitempty"`
	// Idle says which DaemonSetVariants choose no DaemonSet.
	Idle []string `json:"idle,omitempty"`
	// Ignored are the objects of other kinds.
	Ignored []string `json:"ignored,omitempty"`
	// Missing says what could not be read or asked, and why.
	Missing []string `json:"missing,omitempty"`
}

// plan foretells what applying the documents would do.
func (l *lists) plan(ctx context.Context, m *manifests) (*plans, error) {
	s, hidden, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	return l.planOn(ctx, s, hidden, m)
}

// planOn does so by what was read before; hidden says what could not be.
func (l *lists) planOn(ctx context.Context, s *survey.Survey, hidden string, m *manifests) (*plans, error) {
	out := &plans{DaemonSets: []*plan.Forecast{}, Ignored: m.ignored}
	if hidden != "" {
		out.Missing = append(out.Missing, hidden)
	}
	if err := l.mustBeThere(ctx, m, s); err != nil {
		return nil, err
	}
	stored := s
	objects := m.withStartups(m.withVariants(m.withPolicies(s.Given(), l.namespace), l.namespace))
	s = survey.New(objects)
	sets, unasked, err := l.tryAll(ctx, s, m.daemonSets)
	if err != nil {
		return nil, err
	}
	out.Missing = append(out.Missing, unasked...)
	held, would := newHoldings(), objects
	changes, unread, err := l.stored(ctx, held, m.contents)
	if err != nil {
		return nil, err
	}
	out.Missing = append(out.Missing, unread...)
	would.DaemonSets = slices.Clone(would.DaemonSets)
	for i, ds := range would.DaemonSets {
		if at := slices.IndexFunc(sets, func(is *appsv1.DaemonSet) bool { return is.UID == ds.UID }); at >= 0 {
			would.DaemonSets[i] = sets[at]
		}
	}
	objects.Edits, out.Direct = plan.Contents(stored, survey.New(would), changes)
	objects.Holdings = held.in
	varied := m.varied(l.namespace)
	concerned := slices.DeleteFunc(slices.Clone(s.DaemonSets), func(ds *appsv1.DaemonSet) bool {
		return slices.ContainsFunc(sets, func(is *appsv1.DaemonSet) bool { return is.UID == ds.UID }) ||
			len(objects.Edits[ds.UID]) == 0 && !slices.ContainsFunc(varied,
				func(name types.NamespacedName) bool { return varies(&objects, name, ds) })
	})
	for _, ds := range slices.Concat(sets, concerned) {
		for _, ref := range s.Needs(ds) {
			if err := l.hold(ctx, held, ds.Namespace, ref); err != nil {
				return nil, err
			}
		}
	}
	s = survey.New(objects)
	for _, ds := range slices.Concat(sets, concerned) {
		forecast, err := plan.Make(s, s.DaemonSet(ds.Namespace, ds.Name), ds)
		if err != nil {
			return nil, fmt.Errorf("DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
		}
		out.DaemonSets = append(out.DaemonSets, forecast)
	}
	out.Idle = idle(&objects, varied, slices.Concat(sets, s.DaemonSets))
	for _, one := range m.startups {
		forecast := starting.Make(s, named(stored.Startups, one.Name), named(s.Startups, one.Name), sets)
		out.NodeStartups = append(out.NodeStartups, forecast)
	}
	return out, nil
}

// tryAll has the server try all DaemonSets of a file; unasked says of which it may not be asked.
func (l *lists) tryAll(ctx context.Context, s *survey.Survey, all []*appsv1.DaemonSet) (sets []*appsv1.DaemonSet,
	unasked []string, err error) {
	for _, wanted := range all {
		if wanted.Namespace == "" {
			wanted.Namespace = l.namespace
		}
		stored, why, err := l.try(ctx, s.DaemonSet(wanted.Namespace, wanted.Name), wanted)
		if err != nil {
			return nil, nil, fmt.Errorf("DaemonSet %s/%s: %w", wanted.Namespace, wanted.Name, err)
		}
		if why != "" {
			unasked = append(unasked, why)
		}
		sets = append(sets, stored)
	}
	return sets, unasked, nil
}

// named returns the NodeStartup of that name, nil if there is none.
func named(all []*v1alpha1.NodeStartup, name string) *v1alpha1.NodeStartup {
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// try returns the DaemonSet as "kubectl apply" would store it, by having the server try. If it may not be asked,
// defaults and checks are those of this program; unasked then says so.
func (l *lists) try(ctx context.Context, old, wanted *appsv1.DaemonSet) (stored *appsv1.DaemonSet, unasked string,
	err error) {
	sets, dryRun := l.client.AppsV1().DaemonSets(wanted.Namespace), []string{metav1.DryRunAll}
	var patch []byte
	if old == nil {
		stored, err = sets.Create(ctx, wanted, metav1.CreateOptions{DryRun: dryRun,
			FieldValidation: metav1.FieldValidationStrict})
	} else {
		if patch, err = threeWay(old, wanted); err != nil {
			return nil, "", err
		}
		stored, err = sets.Patch(ctx, wanted.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{DryRun: dryRun})
	}
	if !apierrors.IsForbidden(err) {
		return stored, "", err
	}
	if _, why, is := strings.Cut(err.Error(), registration.PlacementWebhook+`" denied the request: `); is {
		stored, err = tryHere(old, wanted, patch)
		return stored, fmt.Sprintf("the server would refuse DaemonSet %s/%s: %s", wanted.Namespace, wanted.Name, why), err
	}
	unasked = fmt.Sprintf(
		"the server may not be asked to try DaemonSet %s/%s, so defaults and checks are this program's: %v",
		wanted.Namespace, wanted.Name, err,
	)
	stored, err = tryHere(old, wanted, patch)
	return stored, unasked, err
}

// threeWay is the patch that "kubectl apply" sends: from what was applied last to what is wanted now.
func threeWay(old, wanted *appsv1.DaemonSet) ([]byte, error) {
	current, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode what is stored: %w", err)
	}
	typed := old.DeepCopy()
	typed.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	original, err := kubectlutil.GetOriginalConfiguration(typed)
	if err != nil {
		return nil, fmt.Errorf("read what was applied last: %w", err)
	}
	modified, err := withoutNulls(wanted)
	if err != nil {
		return nil, err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(appsv1.DaemonSet{})
	if err != nil {
		return nil, fmt.Errorf("describe DaemonSets: %w", err)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, modified, current, meta, true)
	if err != nil {
		return nil, fmt.Errorf("compare with what is stored: %w", err)
	}
	return patch, nil
}

// withoutNulls encodes what somebody has written, without the fields that only the Go type brings.
func withoutNulls(wanted *appsv1.DaemonSet) ([]byte, error) {
	raw, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	delete(fields, "status")
	prune(fields)
	// What kubectl applied last has annotations, if none of its author's. Without any here all would be taken off, those
	// of controllers included; kubectl always has its own.
	meta, is := fields["metadata"].(map[string]any)
	if is && meta["annotations"] == nil {
		meta["annotations"] = map[string]any{}
	}
	return json.Marshal(fields)
}

func prune(fields map[string]any) {
	for k, v := range fields {
		switch v := v.(type) {
		case nil:
			delete(fields, k)
		case map[string]any:
			prune(v)
		}
	}
}

// tryHere does what the server would, as far as this program knows.
func tryHere(old, wanted *appsv1.DaemonSet, patch []byte) (*appsv1.DaemonSet, error) {
	stored := wanted.DeepCopy()
	if old != nil {
		current, err := json.Marshal(old)
		if err != nil {
			return nil, fmt.Errorf("encode what is stored: %w", err)
		}
		merged, err := strategicpatch.StrategicMergePatch(current, patch, appsv1.DaemonSet{})
		if err != nil {
			return nil, fmt.Errorf("merge with what is stored: %w", err)
		}
		stored = &appsv1.DaemonSet{}
		if err := json.Unmarshal(merged, stored); err != nil {
			return nil, fmt.Errorf("decode what is merged: %w", err)
		}
	}
	daemonset.SetDefaults(stored)
	errs := daemonset.Validate(stored)
	if old != nil {
		errs = daemonset.ValidateUpdate(stored, old)
	}
	return stored, errs.ToAggregate()
}

// show writes the plans, and returns the exit code if something would change.
func (p *plans) show(w io.Writer, output string) error {
	var changed error
	for _, f := range p.DaemonSets {
		if f.Changes() {
			changed = changesFound
		}
	}
	for _, f := range p.NodeStartups {
		if f.Changes() {
			changed = changesFound
		}
	}
	if len(p.Direct) > 0 {
		changed = changesFound
	}
	if output != "" {
		raw, err := json.MarshalIndent(p, "", "  ")
		if err == nil && output == "yaml" {
			raw, err = yaml.JSONToYAML(raw)
		}
		if err != nil {
			return fmt.Errorf("encode the plan: %w", err)
		}
		fmt.Fprintln(w, string(raw))
		return changed
	}
	p.write(w)
	return changed
}

// write writes the plans for people.
func (p *plans) write(w io.Writer) {
	for i, f := range p.DaemonSets {
		if i > 0 {
			fmt.Fprintln(w)
		}
		f.Write(w)
	}
	for i, f := range p.NodeStartups {
		if i+len(p.DaemonSets) > 0 {
			fmt.Fprintln(w)
		}
		f.Write(w)
	}
	for _, direct := range p.Direct {
		fmt.Fprint(w, survey.Wrap(direct+".", ""))
	}
	for _, idle := range p.Idle {
		fmt.Fprint(w, survey.Wrap(idle+".", ""))
	}
	for _, ignored := range p.Ignored {
		fmt.Fprint(w, survey.Wrap("Not planned: "+ignored+".", ""))
	}
	for _, missing := range p.Missing {
		fmt.Fprint(w, survey.Wrap("("+missing+")", ""))
	}
}

// readManifests reads a file, or standard input for "-", or nothing for "".
func readManifests(in io.Reader, file string) (*manifests, error) {
	if file == "" {
		return &manifests{}, nil
	}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		defer f.Close()
		in = f
	}
	m, err := parseManifests(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(m.daemonSets)+len(m.contents)+len(m.variants)+len(m.startups) == 0 {
		return nil, fmt.Errorf("%s: there is no DaemonSet, DaemonSetVariant, NodeStartup, ConfigMap or Secret in it", file)
	}
	return m, nil
}
