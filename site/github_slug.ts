/**
 * The anchor that GitHub gives to a heading, so that a link to it works in the files as on the site: lower case,
 * without punctuation, with dashes for spaces. Of equal headings, the second one gets `-1`: the caller adds that.
 *
 * @param heading Its text, without markup.
 */
export function githubSlug(heading: string): string {
  return heading.trim().toLowerCase().replace(
    /[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu,
    "",
  ).replaceAll(" ", "-");
}
