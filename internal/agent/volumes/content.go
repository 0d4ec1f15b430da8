package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/change/content"
)

// file is one file of a volume whose content the node writes.
type file struct {
	data []byte
	mode os.FileMode
	uid  *int64 // owner, nil for root
	// own: it is of what the node knows, and not of a ConfigMap or Secret.
	own bool
}

// files maps relative paths to files.
type files map[string]file

// contentKind names the kind of a volume whose content the node writes; "" for others.
func contentKind(volume *corev1.Volume) string {
	switch {
	case volume.ConfigMap != nil:
		return "configmap"
	case volume.Secret != nil:
		return "secret"
	case volume.DownwardAPI != nil:
		return "downward-api"
	case volume.Projected != nil:
		return "projected"
	}
	return ""
}

func isContent(volume *corev1.Volume) bool { return contentKind(volume) != "" }

// lack returns why the volumes of the pod cannot show all that they are pointed at; nil where they can, or do.
func (m *Manager) lack(ctx context.Context, state *podState, objects reader) error {
	if state.to == nil || m.Shows(state.pod.UID) == (Shown{Key: state.to.Key()}) {
		return nil
	}
	var errs []error
	for i := range state.pod.Spec.Volumes {
		volume := &state.pod.Spec.Volumes[i]
		if !state.to.ShownBy(volume) {
			continue
		}
		g := gathering{manager: m, pod: state.pod, to: state.to, objects: objects, content: files{}}
		if err := g.add(ctx, volume); err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", volume.Name, err))
		}
	}
	return errors.Join(errs...)
}

// setUpContent writes what the volume should show, if it shows something else. Config maps and secrets are read from
// objects. A volume that is pointed at a copy keeps its content while the pod cannot show all that it is pointed at.
func (m *Manager) setUpContent(ctx context.Context, state *podState, volume *corev1.Volume, objects reader) error {
	pod := state.pod
	g := gathering{manager: m, pod: pod, to: state.to, objects: objects, content: files{}}
	err := g.add(ctx, volume)
	group, points := fsGroup(pod), mountPoints(pod, volume.Name)
	dir := m.volumeDir(pod.UID, contentKind(volume), volume.Name)
	if state.lacks != nil && state.to.ShownBy(volume) {
		return errors.Join(err, keepContent(dir, g.content, points, group, m.cfg.Clock.Now()))
	}
	if err != nil {
		return err
	}
	if volume.Secret != nil || volume.Projected != nil {
		// Secrets and tokens don't go to the disk.
		err = mountTmpfs(dir, 0, group, onlyToRead)
	} else {
		err = makeDir(dir, group)
	}
	if err != nil {
		return err
	}
	if err := makeMountPoints(dir, points, g.content); err != nil {
		return err
	}
	return writeFiles(dir, g.content, points, group, m.cfg.Clock.Now())
}

// keepContent replaces what is the node's own in a volume that shows something, as tokens end. Its content stays as it
// was written, whatever has become of the objects since.
func keepContent(dir string, gathered files, points []string, group *int64, now time.Time) error {
	maps.DeleteFunc(gathered, func(_ string, f file) bool { return !f.own })
	if len(gathered) == 0 {
		return nil
	}
	shown, err := readFiles(dir)
	if err != nil || len(shown) == 0 {
		return err
	}
	maps.Copy(shown, gathered)
	return writeFiles(dir, shown, points, group, now)
}

// gathering collects the files of one volume.
type gathering struct {
	manager     *Manager
	pod         *corev1.Pod
	to          *content.Pointing
	objects     reader
	defaultMode os.FileMode
	content     files
}

// add adds the files of a volume.
func (g *gathering) add(ctx context.Context, volume *corev1.Volume) error {
	switch {
	case volume.ConfigMap != nil:
		source := volume.ConfigMap
		g.defaultMode = mode(source.DefaultMode)
		return g.addConfigMap(ctx, &corev1.ConfigMapProjection{
			LocalObjectReference: source.LocalObjectReference, Items: source.Items, Optional: source.Optional,
		})
	case volume.Secret != nil:
		source := volume.Secret
		g.defaultMode = mode(source.DefaultMode)
		return g.addSecret(ctx, &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: source.SecretName}, Items: source.Items,
			Optional: source.Optional,
		})
	case volume.DownwardAPI != nil:
		g.defaultMode = mode(volume.DownwardAPI.DefaultMode)
		return g.addDownwardAPI(volume.DownwardAPI.Items)
	}
	g.defaultMode = mode(volume.Projected.DefaultMode)
	var errs []error
	for i := range volume.Projected.Sources {
		errs = append(errs, g.addProjection(ctx, &volume.Projected.Sources[i]))
	}
	return utilerrors.NewAggregate(errs)
}

func (g *gathering) addProjection(ctx context.Context, source *corev1.VolumeProjection) error {
	switch {
	case source.ConfigMap != nil:
		return g.addConfigMap(ctx, source.ConfigMap)
	case source.Secret != nil:
		return g.addSecret(ctx, source.Secret)
	case source.DownwardAPI != nil:
		return g.addDownwardAPI(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		return g.addToken(ctx, source.ServiceAccountToken)
	case source.ClusterTrustBundle != nil:
		return errors.New("clusterTrustBundle projections are not supported by this node")
	}
	return errors.New("a projected source is of a kind that this node does not support")
}

func (g *gathering) addConfigMap(ctx context.Context, source *corev1.ConfigMapProjection) error {
	optional := source.Optional != nil && *source.Optional
	configMap, err := g.objects.ConfigMap(ctx, g.pod.Namespace, source.Name)
	if apierrors.IsNotFound(err) {
		return missingObject(optional && !g.to.Has(content.ConfigMap, source.Name), "configmap", source.Name)
	}
	if err != nil {
		return err
	}
	data := make(map[string][]byte, len(configMap.Data)+len(configMap.BinaryData))
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	for key, value := range configMap.BinaryData {
		data[key] = value
	}
	if key := g.addKeys(data, source.Items); key != "" && !optional {
		return fmt.Errorf("configmap references non-existent config key: %s", key)
	}
	return nil
}

func (g *gathering) addSecret(ctx context.Context, source *corev1.SecretProjection) error {
	optional := source.Optional != nil && *source.Optional
	secret, err := g.objects.Secret(ctx, g.pod.Namespace, source.Name)
	if apierrors.IsNotFound(err) {
		return missingObject(optional && !g.to.Has(content.Secret, source.Name), "secret", source.Name)
	}
	if err != nil {
		return err
	}
	if key := g.addKeys(secret.Data, source.Items); key != "" && !optional {
		return fmt.Errorf("references non-existent secret key: %s", key)
	}
	return nil
}

// missingObject is the error for an object that must exist, as a copy must of one that was there; in the kubelet's
// words: one object, not its kind in the plural.
func missingObject(optional bool, kind, name string) error {
	if optional {
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource(kind), name)
}

// addKeys adds the chosen keys of data, or all when none are chosen; it returns a chosen key that data lacks.
func (g *gathering) addKeys(data map[string][]byte, items []corev1.KeyToPath) (missing string) {
	if len(items) == 0 {
		for key, value := range data {
			g.content[key] = file{data: value, mode: g.defaultMode}
		}
		return ""
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			missing = item.Key
			continue
		}
		g.content[item.Path] = file{data: value, mode: itemMode(item.Mode, g.defaultMode)}
	}
	return missing
}

func (g *gathering) addDownwardAPI(items []corev1.DownwardAPIVolumeFile) error {
	var errs []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = env.Field(g.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = env.Resource(g.pod, item.ResourceFieldRef, "", g.manager.cfg.Objects.NodeAllocatable())
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("downward API file %q: %w", item.Path, err))
			continue
		}
		g.content[item.Path] = file{data: []byte(text), mode: itemMode(item.Mode, g.defaultMode), own: true}
	}
	return utilerrors.NewAggregate(errs)
}

func mode(m *int32) os.FileMode {
	if m == nil {
		return 0o644
	}
	return os.FileMode(*m) & os.ModePerm
}

func itemMode(m *int32, defaultMode os.FileMode) os.FileMode {
	if m == nil {
		return defaultMode
	}
	return mode(m)
}
