package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/agent/env"
)

// file is one file of a volume whose content the node writes.
type file struct {
	data []byte
	mode os.FileMode
	uid  *int64 // owner, nil for root
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

// setUpContent writes what the volume should show, if it shows something else.
func (m *Manager) setUpContent(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) error {
	content, err := m.content(ctx, pod, volume)
	if err != nil {
		return err
	}
	group := fsGroup(pod)
	dir := m.volumeDir(pod.UID, contentKind(volume), volume.Name)
	if volume.Secret != nil || volume.Projected != nil {
		// Secrets and tokens don't go to the disk.
		err = mountTmpfs(dir, 0, group)
	} else {
		err = makeDir(dir, group)
	}
	if err != nil {
		return err
	}
	return writeFiles(dir, content, group, m.cfg.Clock.Now())
}

// content gathers the files of a volume.
func (m *Manager) content(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (files, error) {
	content := files{}
	switch {
	case volume.ConfigMap != nil:
		source := volume.ConfigMap
		return content, m.addConfigMap(ctx, pod, content, &corev1.ConfigMapProjection{
			LocalObjectReference: source.LocalObjectReference, Items: source.Items, Optional: source.Optional,
		}, mode(source.DefaultMode))
	case volume.Secret != nil:
		source := volume.Secret
		return content, m.addSecret(ctx, pod, content, &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: source.SecretName}, Items: source.Items, Optional: source.Optional,
		}, mode(source.DefaultMode))
	case volume.DownwardAPI != nil:
		source := volume.DownwardAPI
		return content, m.addDownwardAPI(pod, content, source.Items, mode(source.DefaultMode))
	}
	source := volume.Projected
	var errs []error
	for i := range source.Sources {
		errs = append(errs, m.addProjection(ctx, pod, content, &source.Sources[i], mode(source.DefaultMode)))
	}
	return content, errors.Join(errs...)
}

func (m *Manager) addProjection(ctx context.Context, pod *corev1.Pod, content files, source *corev1.VolumeProjection, defaultMode os.FileMode) error {
	switch {
	case source.ConfigMap != nil:
		return m.addConfigMap(ctx, pod, content, source.ConfigMap, defaultMode)
	case source.Secret != nil:
		return m.addSecret(ctx, pod, content, source.Secret, defaultMode)
	case source.DownwardAPI != nil:
		return m.addDownwardAPI(pod, content, source.DownwardAPI.Items, defaultMode)
	case source.ServiceAccountToken != nil:
		return m.addToken(ctx, pod, content, source.ServiceAccountToken, defaultMode)
	case source.ClusterTrustBundle != nil:
		return errors.New("clusterTrustBundle projections are not supported by this node")
	}
	return errors.New("a projected source is of a kind that this node does not support")
}

func (m *Manager) addConfigMap(ctx context.Context, pod *corev1.Pod, content files, source *corev1.ConfigMapProjection, defaultMode os.FileMode) error {
	optional := source.Optional != nil && *source.Optional
	configMap, err := m.cfg.Objects.ConfigMap(ctx, pod.Namespace, source.Name)
	if apierrors.IsNotFound(err) {
		return missingObject(optional, "configmap", source.Name)
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
	if key := addKeys(content, data, source.Items, defaultMode); key != "" && !optional {
		return fmt.Errorf("configmap references non-existent config key: %s", key)
	}
	return nil
}

func (m *Manager) addSecret(ctx context.Context, pod *corev1.Pod, content files, source *corev1.SecretProjection, defaultMode os.FileMode) error {
	optional := source.Optional != nil && *source.Optional
	secret, err := m.cfg.Objects.Secret(ctx, pod.Namespace, source.Name)
	if apierrors.IsNotFound(err) {
		return missingObject(optional, "secret", source.Name)
	}
	if err != nil {
		return err
	}
	if key := addKeys(content, secret.Data, source.Items, defaultMode); key != "" && !optional {
		return fmt.Errorf("references non-existent secret key: %s", key)
	}
	return nil
}

// missingObject is the error for an object that must exist, in the kubelet's words: one object, not its kind in the plural.
func missingObject(optional bool, kind, name string) error {
	if optional {
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource(kind), name)
}

// addKeys adds the chosen keys of data, or all when none are chosen; it returns a chosen key that data lacks.
func addKeys(content files, data map[string][]byte, items []corev1.KeyToPath, defaultMode os.FileMode) (missing string) {
	if len(items) == 0 {
		for key, value := range data {
			content[key] = file{data: value, mode: defaultMode}
		}
		return ""
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			missing = item.Key
			continue
		}
		content[item.Path] = file{data: value, mode: itemMode(item.Mode, defaultMode)}
	}
	return missing
}

func (m *Manager) addDownwardAPI(pod *corev1.Pod, content files, items []corev1.DownwardAPIVolumeFile, defaultMode os.FileMode) error {
	var errs []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = env.Field(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = env.Resource(pod, item.ResourceFieldRef, "", m.cfg.Objects.NodeAllocatable())
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("downward API file %q: %w", item.Path, err))
			continue
		}
		content[item.Path] = file{data: []byte(text), mode: itemMode(item.Mode, defaultMode)}
	}
	return errors.Join(errs...)
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
