package pinning

import (
	"cmp"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
)

const digest = "@sha256:"

// AsWritten is said of an image whose tag has no digest.
const AsWritten = "is taken as written"

// Of is what the status of a rollout says of a template's images; nil where it says nothing.
func Of(s *v1alpha1.ImagesStatus, template string) *v1alpha1.PinnedTemplate {
	if s == nil {
		return nil
	}
	at := slices.IndexFunc(s.Templates, func(t v1alpha1.PinnedTemplate) bool { return t.Template == template })
	if at < 0 {
		return nil
	}
	return &s.Templates[at]
}

// tagged calls visit for each container of a pod whose image has a tag, or neither tag nor digest, and may be pulled.
func tagged(spec *corev1.PodSpec, visit func(*corev1.Container)) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if c.Image != "" && !strings.Contains(c.Image, "@") && c.ImagePullPolicy != corev1.PullNever {
				visit(c)
			}
		}
	}
}

// taggedVolumes does the same with the volumes of a pod that are images.
func taggedVolumes(spec *corev1.PodSpec, visit func(*corev1.Volume)) {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Image != nil && v.Image.Reference != "" && !strings.Contains(v.Image.Reference, "@") &&
			v.Image.PullPolicy != corev1.PullNever {
			visit(v)
		}
	}
}

// Tags are the images of a template that a registry is asked about, in order and each once.
func Tags(spec *corev1.PodSpec) (out []string) {
	tagged(spec, func(c *corev1.Container) { out = append(out, c.Image) })
	taggedVolumes(spec, func(v *corev1.Volume) { out = append(out, v.Image.Reference) })
	slices.Sort(out)
	return slices.Compact(out)
}

// Fill has a pod's spec name the digests of its images; the first one's pulls what its tags name now. The spec is
// changed in place; it must be nobody else's.
func Fill(spec *corev1.PodSpec, images []v1alpha1.PinnedImage, first bool) {
	digests := map[string]string{}
	for _, i := range images {
		digests[i.Image] = i.Digest
	}
	tagged(spec, func(c *corev1.Container) {
		switch of := digests[c.Image]; {
		case of != "":
			c.Image = repository(c.Image) + "@" + of
		case first:
			c.ImagePullPolicy = corev1.PullAlways
		}
	})
	taggedVolumes(spec, func(v *corev1.Volume) {
		switch of := digests[v.Image.Reference]; {
		case of != "":
			v.Image.Reference = repository(v.Image.Reference) + "@" + of
		case first:
			v.Image.PullPolicy = corev1.PullAlways
		}
	})
}

// repository is an image without its tag.
func repository(image string) string {
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[:at]
	}
	return image
}

// full is a repository as registries know it, such as docker.io/library/nginx for nginx.
func full(repository string) string {
	named, err := reference.ParseNormalizedNamed(repository)
	if err != nil {
		return repository
	}
	return named.Name()
}

// tells reports whether a pod may come to know a container's image: a variant of the DaemonSet has not given it another
// one, nor a digest of which nobody knows whose it is.
func tells(c *corev1.Container, p *corev1.Pod) bool {
	if variant.MarkOf(&p.ObjectMeta).Effect == "" {
		return true
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == c.Name {
				return containers[i].Image == c.Image
			}
		}
	}
	return false
}

// Tells reports whether a pod may come to know all images of its template. One that has pulled two digests by one tag,
// which moved in between, never will.
func Tells(template *corev1.PodSpec, p *corev1.Pod) bool {
	all := true
	tagged(template, func(c *corev1.Container) { all = all && tells(c, p) })
	taggedVolumes(template, func(v *corev1.Volume) { all = all && tellsVolume(v, p) })
	return all && read(template, p).one
}

// reading is what a pod tells of its template's images.
type reading struct {
	digests map[string]string // "" where its node knows none
	// whole: it knows of all by now. made: it was made with digests. one: it has no two digests of one image.
	whole, made, one bool
}

func read(template *corev1.PodSpec, p *corev1.Pod) reading {
	r := reading{digests: map[string]string{}, whole: true, made: true, one: true}
	take := func(image, of string, known, asked bool) {
		r.whole, r.made = r.whole && known, r.made && !asked
		if !known {
			return
		}
		has := r.digests[image]
		r.one = r.one && (has == "" || of == "" || of == has)
		if has == "" {
			r.digests[image] = of
		}
	}
	tagged(template, func(c *corev1.Container) {
		of, known, asked := resolved(c, p)
		take(c.Image, of, known, asked)
	})
	taggedVolumes(template, func(v *corev1.Volume) {
		of, known, asked := resolvedVolume(v, p)
		take(v.Image.Reference, of, known, asked)
	})
	return r
}

// Read returns what the images of a template are in one of its pods. Whole tells that the pod knows of all by now.
// Made tells that it was made with digests. An image without a digest is one whose node knows none of its repository.
func Read(template *corev1.PodSpec, p *corev1.Pod) (images []v1alpha1.PinnedImage, whole, made bool) {
	is := read(template, p)
	for image, of := range is.digests {
		images = append(images, v1alpha1.PinnedImage{Image: image, Digest: of})
	}
	slices.SortFunc(images, func(a, b v1alpha1.PinnedImage) int { return cmp.Compare(a.Image, b.Image) })
	return images, is.whole && is.one, is.made
}

// resolved returns the digest that a pod has for a container of the template, "" for none. Known tells that it has
// pulled the image; asked that it asked for the tag. A digest that a pod was made with counts once it is pulled:
// whoever may write the pod may have written any.
func resolved(c *corev1.Container, p *corev1.Pod) (of string, known, asked bool) {
	if !tells(c, p) {
		return "", false, true
	}
	id := pulled(p, c.Name)
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			name, has, _ := strings.Cut(containers[i].Image, digest)
			if containers[i].Name == c.Name && name == repository(c.Image) && isDigest(has) {
				return digest[1:] + has, id != "", false
			}
		}
	}
	return digestOf(c.Image, id), id != "", true
}

// pulled is what the node says of the image of a container; "" before it has it.
func pulled(p *corev1.Pod, container string) string {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if s := &statuses[i]; s.Name == container && s.ImageID != "" {
				return s.ImageID
			}
		}
	}
	return ""
}

func isDigest(hex string) bool { return len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == "" }

// digestOf is the digest in what a node says of an image, if it is one of the image's repository.
func digestOf(image, id string) string {
	name, of, is := strings.Cut(strings.TrimPrefix(id, "docker-pullable://"), digest)
	if !is || full(name) != full(repository(image)) || !isDigest(of) {
		return ""
	}
	return digest[1:] + of
}
