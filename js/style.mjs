// The style of cards and tab. Colours follow ComfyUI's theme (light and dark); the stats' are those of contact sheets.

import { SLOT_STYLE } from "./link_colours.mjs";

const STYLE = `
.ag {
  --ag-paper: var(--comfy-menu-bg, #353535);
  --ag-ink: var(--fg-color, #fff);
  --ag-faint: color-mix(in srgb, var(--ag-ink) 70%, var(--ag-paper));
  --ag-edge: color-mix(in srgb, var(--ag-ink) 14%, transparent);
  --ag-track: color-mix(in srgb, var(--ag-ink) 13%, transparent);
  --ag-card: color-mix(in srgb, var(--ag-ink) 4%, var(--ag-paper));
  --ag-stamina: #2a9c65; --ag-social: #2f74d0; --ag-entertainment: #d07a1c; --ag-motion: #6d4fc4; --ag-loss: #c8452f;
  --ag-focus: color-mix(in srgb, var(--ag-motion) 55%, var(--ag-ink));
  color: var(--ag-ink); font: 13px/1.4 Inter, system-ui, sans-serif; text-align: start; box-sizing: border-box;
}
.ag *, .ag *::before, .ag *::after { box-sizing: border-box; }
.ag[hidden], .ag [hidden] { display: none !important; }
.ag p, .ag h2, .ag h3, .ag ul, .ag dl { margin: 0; padding: 0; list-style: none; }
.ag h3 { font-size: 11px; font-weight: 600; letter-spacing: .04em; text-transform: uppercase; color: var(--ag-faint); }
.ag :focus { outline: none; }
.ag :focus-visible { outline: 2px solid var(--ag-focus); outline-offset: 2px; }
.ag-unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.ag-faint { color: var(--ag-faint); }

.ag-card, .ag-existing, .ag-takes, .ag-branches { display: flex; flex-direction: column; gap: 8px; }
.ag-in-node { background: var(--ag-card); border: 1px solid var(--ag-edge); border-radius: 10px; padding: 12px; overflow: hidden; width: 100%; height: 100%; }
.ag .ag-empty { margin: auto; color: var(--ag-faint); text-align: center; }
.ag-body { display: flex; flex-direction: column; gap: 12px; min-width: 0; }
.ag-in-node .ag-body { flex: 1; }
.ag-head { display: flex; gap: 10px; align-items: flex-start; min-height: 34px; min-width: 0; }
.ag-number { flex: none; min-width: 26px; height: 26px; padding: 0 6px; border-radius: 13px; display: grid; place-items: center; font-weight: 600; font-size: 12px;
  color: var(--ag-paper); background: var(--ag-ink); font-variant-numeric: tabular-nums; }
.ag-words { display: flex; flex-direction: column; min-width: 0; flex: 1; color: var(--ag-faint); font-size: 12px; overflow-wrap: anywhere; }
.ag-typed { margin: 0; color: var(--ag-faint); font-size: 11px; overflow-wrap: anywhere; }
.ag-typed:empty, .ag-message:empty { display: none; }
.ag-words span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ag-stage .ag-words span:not(:only-child) { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; white-space: normal; }
.ag-words span:first-child { color: var(--ag-ink); font-size: 14px; font-weight: 600; line-height: 26px; }
.ag-words span:only-child { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; white-space: normal; line-height: 1.35; padding-top: 4px; }
.ag-rows { display: grid; grid-template-columns: minmax(0, max-content) minmax(30px, 1fr) 26px 30px; gap: 8px; align-items: center; }
.ag-row { display: contents; }
.ag-label { color: var(--ag-faint); font-size: 12px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ag-track, .ag-bar { display: block; height: 8px; border-radius: 4px; background: var(--ag-track); overflow: hidden; }
.ag-fill { display: block; height: 100%; border-radius: 4px; background: var(--ag-own); transition: width .5s ease; }
.ag-value { text-align: end; font-weight: 600; font-variant-numeric: tabular-nums; }
.ag-change { font-size: 11px; font-weight: 600; text-align: center; border-radius: 9px; line-height: 18px; height: 18px; font-variant-numeric: tabular-nums; }
.ag-gain { background: color-mix(in srgb, var(--ag-stamina) 22%, transparent); color: color-mix(in srgb, var(--ag-stamina) 45%, var(--ag-ink)); }
.ag-loss { background: color-mix(in srgb, var(--ag-loss) 20%, transparent); color: color-mix(in srgb, var(--ag-loss) 45%, var(--ag-ink)); }
.ag-scope { display: grid; grid-template-columns: repeat(5, 1fr); gap: 4px; }
.ag-scope span { height: 8px; border-radius: 4px; background: var(--ag-track); transition: background .3s; }
.ag-scope .ag-on { background: var(--ag-motion); }
.ag-word { grid-column: span 2; font-size: 12px; font-weight: 600; text-align: end; white-space: nowrap; }
.ag-course { display: flex; flex-direction: column; gap: 5px; }
.ag-plot { display: flex; gap: 8px; height: 54px; }
.ag-scale { flex: none; width: 20px; display: flex; flex-direction: column; justify-content: space-between; margin-block: -4px; font-size: 10px; color: var(--ag-faint); text-align: end; font-variant-numeric: tabular-nums; }
.ag-lines { display: block; flex: 1; min-width: 0; height: 100%; overflow: visible; }
.ag-steps { display: block; width: calc(100% - 28px); height: 13px; }
.ag-steps rect { fill: var(--ag-motion); opacity: .75; }
.ag-grid { stroke: var(--ag-edge); stroke-width: 1px; vector-effect: non-scaling-stroke; }
.ag-line { fill: none; stroke: var(--ag-own); stroke-width: 2px; stroke-linejoin: round; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.ag-dashed-0 { stroke-dasharray: 7 4; } .ag-dashed-1 { stroke-dasharray: 1 4; stroke-width: 3px; } .ag-dashed-3 { stroke-dasharray: 12 4 2 4; }
.ag-notes { display: flex; flex-direction: column; gap: 4px; font-size: 12px; }
.ag-notes li, .ag .ag-note { padding-inline-start: 10px; border-inline-start: 3px solid var(--ag-entertainment); overflow-wrap: anywhere; }
.ag-form .ag-notes { max-height: 110px; overflow: hidden auto; scrollbar-width: thin; }
.ag .ag-remembered { font-size: 12px; line-height: 17px; color: var(--ag-faint); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.ag-notes.ag-in-node { padding-block: 6px; }
.ag .ag-note { margin-top: -7px; font-size: 12px; line-height: 17px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }

.side-bar-panel:has(.ag-play) { min-width: min(300px, 60vw); } /* older pages give it a fifth of the window, too little at a zoom of 200 % */
.ag-play { position: relative; height: 100%; display: flex; flex-direction: column; background: var(--ag-paper); container-type: inline-size; overflow: hidden; }
.ag-play button, .ag-play input, .ag-play select, .ag-play textarea { font: inherit; color: inherit; }
.ag-play button { cursor: pointer; border: 0; background: none; padding: 0; border-radius: 8px; }
.ag-play button:is(:disabled, [aria-disabled=true]) { opacity: .45; cursor: default; }
.ag-play input, .ag-play select, .ag-play textarea { width: 100%; min-width: 0; background: color-mix(in srgb, var(--ag-ink) 5%, var(--ag-paper)); border: 1px solid var(--ag-edge); border-radius: 8px; padding: 7px 10px; }
:is(.ag-play, .ag-training) select option { color: var(--ag-ink); background: var(--ag-paper); }
.ag-play input, .ag-play select { height: 34px; }
.ag-play ::placeholder { color: var(--ag-faint); opacity: 1; }
.ag-play :is(input, select, textarea):focus-visible { outline-offset: 0; }
.ag-main, .ag-second { display: inline-flex; align-items: center; justify-content: center; gap: 8px; height: 36px; padding: 0 14px !important; font-weight: 600 !important; white-space: nowrap; }
.ag-main { background: var(--ag-motion) !important; color: #fff !important; }
.ag-main:not(:disabled):hover { background: color-mix(in srgb, var(--ag-motion) 88%, #000) !important; }
.ag-second, .ag-icon { background: color-mix(in srgb, var(--ag-ink) 9%, transparent) !important; }
:is(.ag-second, .ag-icon):not(:disabled):hover { background: color-mix(in srgb, var(--ag-ink) 16%, transparent) !important; }
.ag-stop-button { background: color-mix(in srgb, var(--ag-loss) 24%, transparent) !important; }
.ag-icon { flex: none; width: 32px; height: 32px; display: inline-grid; place-items: center; }
.ag-quiet { display: inline-flex; gap: 6px; align-items: center; color: var(--ag-faint) !important; font-size: 12px !important; padding: 2px 6px !important; min-height: 26px; margin-inline-start: auto; flex: none; }
.ag-quiet:not(:disabled):hover { color: var(--ag-ink) !important; }

.ag-start { display: flex; flex-direction: column; gap: 18px; padding: 20px 16px; overflow: auto; }
.ag-start h2 { font-size: 20px; line-height: 1.3; margin-bottom: 4px; }
.ag-new { display: flex; flex-direction: column; gap: 12px; padding: 14px; border: 1px solid var(--ag-edge); border-radius: 12px; background: var(--ag-card); }
.ag-field, .ag-training-curve { display: flex; flex-direction: column; gap: 4px; min-width: 0; }
.ag-field > span { font-size: 12px; color: var(--ag-faint); }
.ag-opening, .ag-opening-more { display: flex; flex-direction: column; gap: 12px; }
.ag-opening-file { display: flex; gap: 6px; align-items: center; }
.ag-play .ag-opening-file input { flex: 1; height: auto; padding: 5px 6px; font-size: 12px; }
.ag-opening-file input::file-selector-button { font: inherit; color: inherit; margin-inline-end: 8px; padding: 4px 10px; border: 0; border-radius: 6px; cursor: pointer; background: color-mix(in srgb, var(--ag-ink) 12%, transparent); }
.ag-opening-look { display: flex; gap: 6px; }
.ag-opening-look > * { min-width: 0; display: block; width: 100%; max-height: 200px; object-fit: contain; border-radius: 8px; background: #000; }
.ag-story { width: 100%; display: grid; grid-template-columns: 1fr auto; gap: 0 8px; align-items: center; text-align: start; padding: 10px 12px !important; background: var(--ag-card) !important; border: 1px solid var(--ag-edge) !important; }
.ag-story:hover { background: color-mix(in srgb, var(--ag-ink) 9%, var(--ag-paper)) !important; }
.ag-story span { grid-column: 1; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 12px; }
.ag-story .ag-story-name { font-weight: 600; font-size: 14px; }
.ag-library { display: flex; flex-direction: column; gap: 10px; container-type: inline-size; }
.ag-library > [role=status]:empty { margin-top: -10px; }
.ag-library li { display: flex; gap: 4px; align-items: center; }
.ag-library .ag-story { flex: 1; min-width: 0; grid-template-columns: 72px 1fr; padding: 6px 12px 6px 6px !important; }
.ag-library .ag-story span { grid-column: 2; align-self: end; }
.ag-library .ag-story .ag-faint { grid-row: 2; align-self: start; }
.ag-story .ag-thumb { grid-column: 1; grid-row: 1 / span 2; width: 72px; height: 48px; object-fit: cover; border-radius: 6px; display: block; background: var(--ag-track); }
.ag-rename { flex: 1; min-width: 0; display: flex; gap: 6px; }
.ag-removed { display: flex; gap: 10px; align-items: center; justify-content: space-between; padding: 6px 10px; border-radius: 8px; background: var(--ag-track); overflow-wrap: anywhere; }
@container (max-width: 300px) { .ag-library li { flex-wrap: wrap; } .ag-library .ag-story { flex: 1 0 100%; } }

.ag-get-weights { height: 30px; font-weight: 500 !important; }
.ag-dialog { position: fixed; inset: 0; width: min(640px, 94vw); max-height: 90vh; margin: auto; padding: 18px; border: 1px solid var(--ag-edge); border-radius: 12px; overflow: auto; }
.ag-dialog:not([open]) { display: none; }
.ag-dialog[open] { display: flex; flex-direction: column; gap: 12px; height: fit-content; }
.ag-dialog::backdrop { background: rgb(0 0 0 / .55); }
.ag-dialog h2 { font-size: 18px; }
.ag-dialog > * { flex: none; }
.ag-foot { position: sticky; bottom: -18px; display: flex; flex-direction: column; gap: 10px; margin: 0 -18px -18px !important; padding: 12px 18px !important; border-top: 1px solid var(--ag-edge); background: var(--ag-paper); }
.ag-weights-facts { display: flex; flex-direction: column; gap: 8px; overflow-wrap: anywhere; }
.ag-weights-facts li { font-size: 12px; color: var(--ag-faint); }
.ag-licence { white-space: pre-line; font-size: 12px; max-height: 180px; overflow: auto; padding: 10px !important; border: 1px solid var(--ag-edge); border-radius: 8px; background: var(--ag-card); }
.ag-check { display: flex; gap: 8px; align-items: center; }
.ag-play .ag-check input { width: 16px; height: 16px; flex: none; }
.ag-export { width: min(480px, 94vw); }
.ag-export-form, .ag-look { display: flex; flex-direction: column; gap: 12px; border: 0; margin: 0; padding: 0; min-width: 0; }
.ag-dialog .ag-command { display: block; margin-top: 4px; font: 12px/1.5 ui-monospace, monospace; color: var(--ag-ink); overflow-wrap: anywhere; user-select: text; }

.ag-game { display: flex; flex-direction: column; min-height: 0; flex: 1; }
.ag-top { display: flex; gap: 6px; align-items: center; padding: 10px 12px; border-bottom: 1px solid var(--ag-edge); }
.ag-title-words { flex: 1; min-width: 0; padding: 0 4px; display: flex; flex-wrap: wrap; align-items: baseline; gap: 8px; height: 20px; overflow: hidden; }
.ag-name { font-size: 15px; line-height: 20px; max-width: 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ag-chip { font-size: 11px; line-height: 20px; color: var(--ag-faint); max-width: 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ag-scroll { flex: 1; min-height: 0; container-type: size; /* the clip is never higher than what is in view */ overflow: hidden auto; padding: 12px; display: flex; flex-direction: column; gap: 16px; scrollbar-width: thin; }
.ag-scroll > * { flex: none; }
.ag-stage { display: flex; flex-direction: column; gap: 10px; }
.ag-frame { position: relative; aspect-ratio: 3 / 2; max-height: max(64px, min(46vh, 100cqh)); border-radius: 12px; overflow: hidden; background: color-mix(in srgb, var(--ag-ink) 7%, var(--ag-paper)); }
.ag-screen, .ag-screen > * { width: 100%; height: 100%; }
.ag-screen :is(video, img), .ag-preview { object-fit: contain; display: block; background: #000; }
.ag-preview { position: absolute; inset: 0; width: 100%; height: 100%; }
.ag-blank { display: grid !important; place-items: center; font-size: 34px; color: color-mix(in srgb, var(--ag-ink) 26%, transparent); }
.ag-play .ag-draft { position: absolute; inset-inline-start: 8px; top: 8px; max-width: calc(100% - 16px); padding: 0 8px; border-radius: 10px; font-size: 11px; line-height: 20px; color: #fff; background: rgb(0 0 0 / .72); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ag-pause { position: absolute; inset-inline-end: 8px; bottom: 8px; background: rgb(0 0 0 / .5) !important; color: #fff !important; opacity: .6; transition: opacity .2s; }
.ag-frame:hover .ag-pause, .ag-pause:focus-visible { opacity: 1; }
.ag-stage[data-coming] .ag-screen { opacity: .45; } .ag-stage[data-coming] .ag-draft { display: none; }
.ag-clips { display: flex; gap: 6px; }
.ag-clips.ag-three { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); }
.ag-line-strip { overflow: auto hidden; padding: 3px; margin: -3px; scrollbar-width: thin; }
.ag-clip { position: relative; flex: none; width: 78px; aspect-ratio: 3 / 2; border-radius: 8px; overflow: hidden; background: var(--ag-track) !important; }
.ag-three .ag-clip { width: auto; }
.ag-clip video { width: 100%; height: 100%; object-fit: cover; display: block; }
.ag-clip::after { content: ""; position: absolute; inset: 0; border-radius: 8px; box-shadow: inset 0 0 0 1px var(--ag-edge); pointer-events: none; }
.ag-clip.ag-current::after { box-shadow: inset 0 0 0 3px var(--ag-motion), inset 0 0 0 4px rgb(255 255 255 / .85); }
.ag-clip.ag-dim { opacity: .5; } .ag-clip.ag-dim:hover, .ag-clip.ag-dim:focus-visible { opacity: 1; }
.ag-badge { position: absolute; inset-inline-start: 6px; bottom: 6px; min-width: 18px; padding: 0 5px; border-radius: 9px; font-size: 11px; line-height: 18px; font-weight: 600; text-align: center; color: #fff; background: rgb(0 0 0 / .62); }
.ag-no-clip { display: grid; place-items: center; height: 100%; padding: 4px; font-size: 11px; color: var(--ag-faint); overflow: hidden; }
.ag-coming { background: linear-gradient(100deg, transparent 30%, var(--ag-edge), transparent 70%), var(--ag-track) !important; }
.ag-play > .ag-game .ag-card { padding: 12px; border: 1px solid var(--ag-edge); border-radius: 12px; background: var(--ag-card); }
.ag-files { display: flex; flex-wrap: wrap; gap: 6px 14px; }
.ag-link { color: inherit; font-weight: 600; text-underline-offset: 3px; border-radius: 4px; }
.ag-map { position: relative; overflow: auto; max-height: 190px; border: 1px solid var(--ag-edge); border-radius: 12px; background: var(--ag-card); scrollbar-width: thin; }
.ag-rails { display: block; }
.ag-rails path { fill: none; stroke: color-mix(in srgb, var(--ag-ink) 24%, var(--ag-paper)); stroke-width: 2px; }
.ag-rails path.ag-mine { stroke: color-mix(in srgb, var(--ag-motion) 70%, var(--ag-ink)); stroke-width: 2.5px; }
.ag-play .ag-stop { position: absolute; left: var(--x); top: var(--y); width: 22px; height: 22px; margin: -11px; border-radius: 50%; font-size: 10px; font-weight: 600; text-align: center;
  background: color-mix(in srgb, var(--ag-ink) 8%, var(--ag-paper)); border: 2px solid color-mix(in srgb, var(--ag-ink) 24%, var(--ag-paper)); color: var(--ag-faint); line-height: 1; }
.ag-play .ag-stop.ag-mine { border-color: color-mix(in srgb, var(--ag-motion) 70%, var(--ag-ink)); color: var(--ag-ink); }
.ag-play .ag-stop.ag-recalled { box-shadow: 0 0 0 2px var(--ag-paper), 0 0 0 4px var(--ag-entertainment); }
.ag-play .ag-stop:hover { background: color-mix(in srgb, var(--ag-ink) 22%, var(--ag-paper)); }
.ag-play .ag-stop[aria-current] { background: var(--ag-motion); border-color: var(--ag-motion); color: #fff; }
.ag-play .ag-stop:empty { width: 12px; height: 12px; margin: -6px; }

.ag-form { display: flex; flex-direction: column; gap: 8px; padding: 10px 12px 12px; border-top: 1px solid var(--ag-edge); background: var(--ag-paper); max-height: 70%; overflow: auto; scrollbar-width: thin; }
.ag-form > * { flex: none; }
.ag-status, .ag-doing, .ag-stories, .ag-suggestions, .ag-proposals, .ag-training-shots {
  display: flex; flex-direction: column; gap: 6px; }
.ag-status:not(:has(> :not([hidden], :empty))) { display: none; }
.ag-message, .ag-status-words { font-size: 12px; color: var(--ag-faint); }
.ag-bar { height: 6px; --ag-own: var(--ag-motion); }
/* Without a GPU any animation, also one in steps, costs 0.1 of a core or more: 60 frames a second of the whole page. */
.ag-bar .ag-fill { transition: none; }
.ag-bar.ag-unknown .ag-fill { width: 30%; opacity: .5; }
.ag-alert { padding: 8px 10px !important; border-radius: 8px; background: color-mix(in srgb, var(--ag-loss) 18%, transparent); overflow-wrap: anywhere; }
.ag-folds { display: grid; grid-template-columns: 1fr auto 1fr; gap: 4px 12px; }
.ag-fold { grid-row: 1; grid-column: 1; justify-self: start; align-self: start; }
.ag-fold:nth-of-type(2) { grid-column: 2; }
.ag-fold:nth-of-type(3) { grid-column: 3; justify-self: end; }
.ag-folds > .ag-fold[open] { grid-column: 1 / -1; justify-self: stretch; }
.ag-fold:not([open]) { z-index: 1; }
.ag-fold + .ag-fold[open] summary { display: flex; width: max-content; margin-inline: auto; }
.ag-fold:nth-of-type(3)[open] summary { margin-inline: auto 0; }
.ag-fold summary { display: inline-flex; gap: 6px; align-items: center; cursor: pointer; font-size: 12px; color: var(--ag-faint); border-radius: 6px; padding: 2px 4px; list-style: none; }
.ag-fold summary::-webkit-details-marker { display: none; }
.ag-fold summary:hover, .ag-fold[open] summary { color: var(--ag-ink); }
.ag-grid-fields { display: grid; grid-template-columns: 2fr 3fr; gap: 8px; padding: 6px 0 2px; }
.ag-settings { display: grid; grid-template-columns: 1fr 1fr; gap: 6px 10px; padding: 6px 0 2px; }
.ag-settings .ag-field { flex-direction: row; align-items: center; gap: 6px; }
.ag-settings .ag-field > span { flex: none; }
.ag-settings .ag-field > span::first-letter { text-transform: uppercase; }
.ag-settings :is(input, select) { height: 30px; padding: 4px 6px; }
.ag-settings select ~ input { flex: 0 0 64px; }
.ag-grid-fields > :first-child, .ag-settings > :first-child { grid-column: 1 / -1; }
.ag-text { resize: none; min-height: 56px; max-height: 180px; field-sizing: content; display: block; }
.ag-checked { display: grid; }
.ag-checked > * { grid-area: 1 / 1; }
.ag-marks { z-index: 1; padding: 7px 10px; max-height: 180px; border: 1px solid transparent; overflow: hidden; white-space: pre-wrap; overflow-wrap: anywhere; color: transparent; pointer-events: none; }
.ag-new .ag-marks { white-space: pre; }
:is(.ag-form, .ag-new) u { text-decoration: underline wavy var(--ag-loss) 1.5px; text-underline-offset: 3px; }
.ag-check-notes { display: flex; flex-direction: column; gap: 4px; font-size: 12px; max-height: max(110px, 24vh); overflow: hidden auto; scrollbar-width: thin; }
.ag-instead, .ag-word-row { display: flex; flex-wrap: wrap; gap: 4px; align-items: baseline; }
.ag-play .ag-word-chip { padding: 0 8px; line-height: 22px; font-size: 12px; border: 1px solid var(--ag-edge); border-radius: 11px; background: color-mix(in srgb, var(--ag-ink) 7%, transparent); }
.ag-play .ag-word-chip:hover { background: color-mix(in srgb, var(--ag-ink) 16%, transparent); }
.ag-play .ag-word-chip[aria-pressed=true] { background: var(--ag-motion); color: #fff; }
.ag-play .ag-word-chip.ag-untried { border: 1px dashed var(--ag-entertainment); }
.ag-node-words { height: 100%; padding: 4px 12px; }
.ag-characters { flex-shrink: 0; width: 100%; height: auto; border-radius: 6px; }
.ag-word-list { display: flex; flex-direction: column; gap: 5px; max-height: 34vh; overflow: auto; padding: 4px 0; scrollbar-width: thin; }
.ag-word-row { position: relative; padding-inline-start: 68px; }
.ag-word-row > .ag-faint { position: absolute; inset-inline-start: 0; width: 64px; line-height: 24px; font-size: 11px; overflow: hidden; text-overflow: ellipsis; }
.ag-proposals .ag-story { padding: 6px 10px !important; }
.ag-proposals .ag-story .ag-story-name { font-size: 12px; white-space: normal; }
.ag-proposal { display: flex; gap: 4px; align-items: stretch; } .ag-proposal .ag-story { flex: 1; min-width: 0; }
.ag-proposal .ag-edit { height: auto; }
.ag-ask { display: flex; flex-wrap: wrap; gap: 4px; align-items: center; font-size: 12px; }
.ag-ask .ag-quiet { margin-inline-start: 0; padding-inline: 4px !important; }
.ag-ask .ag-quiet span { display: inline; }
.ag-play .ag-ask input { width: 48px; height: 28px; padding: 2px 6px; font-size: 12px; }
.ag-form:has(.ag-fold[open], .ag-check-notes:not([hidden])) .ag-suggestions { display: none; }
.ag-buttons { display: flex; gap: 8px; }
.ag-form .ag-buttons { position: sticky; bottom: 0; background: var(--ag-paper); }
.ag-buttons .ag-main { flex: 1; }
@container (max-width: 300px) { .ag-scroll, .ag-top, .ag-form { padding-inline: 8px; } .ag-top { gap: 4px; } .ag-icon { width: 28px; height: 30px; } .ag-chip { display: none; } .ag-play > .ag-game .ag-card { padding: 10px; }
  .ag-top { flex-wrap: wrap; } .ag-title-words { order: 9; flex: 1 0 100%; } .ag-top > button:nth-of-type(2) { margin-inline-start: auto; }
  .ag-play .ag-rows { grid-template-columns: minmax(0, 1fr) 26px 30px; grid-auto-flow: dense; gap: 4px 6px; }
  .ag-play .ag-label { grid-column: 1; } .ag-play .ag-value { grid-column: 2; } .ag-play .ag-change { grid-column: 3; } .ag-play .ag-word { grid-column: 2 / -1; }
  .ag-play :is(.ag-track, .ag-scope) { grid-column: 1 / -1; margin-bottom: 4px; } }
@media (max-height: 700px) { /* as at a zoom of 200 %: the buttons stay in view, the proposals stand side by side */
  .ag-text { min-height: 36px; max-height: 90px; } .ag-form { gap: 6px; padding-block: 6px 8px; }
  .ag-play .ag-proposals { flex-direction: row; overflow: auto hidden; scrollbar-width: thin; padding: 3px; margin: -3px; }
  .ag-proposal { flex: none; max-width: 96%; } .ag-play .ag-proposals .ag-story .ag-story-name { white-space: nowrap; } }
@container (max-width: 420px) { .ag-quiet span { display: none; } }
@container (min-width: 430px) { .ag-clip { width: 96px; } }
.ag-training { height: 100%; display: flex; flex-direction: column; gap: 10px; padding: 10px 16px; background: var(--ag-paper); container-type: inline-size; overflow: auto; }
.ag-training-top { display: flex; gap: 12px; align-items: center; flex: none; }
.ag-training select { font: inherit; color: var(--ag-ink); background: var(--ag-card); border: 1px solid var(--ag-edge); border-radius: 8px; padding: 4px 8px; height: 30px; max-width: 40%; }
.ag-training .ag-doing { flex: 1; flex-direction: row; align-items: center; gap: 12px; }
.ag-training .ag-status-words { font-size: inherit; color: inherit; font-variant-numeric: tabular-nums; }
.ag-training .ag-bar { flex: 1; min-width: 60px; } .ag-training .ag-unknown { display: none; }
.ag-training-parts { flex: 1; min-height: 0; display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); grid-template-rows: minmax(0, 1fr); gap: 16px; }
.ag-training-parts > * { min-width: 0; min-height: 0; }
.ag-training-curve .ag-plot { flex: 1; min-height: 60px; }
.ag-training-curve .ag-scale { width: 44px; }
.ag-training-curve .ag-line { stroke-width: 2px; stroke-dasharray: none; }
.ag-line.ag-of-loss { stroke: var(--ag-social); } .ag-line.ag-of-held_out_loss { stroke: var(--ag-entertainment); }
.ag-legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; }
.ag-key::before { content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-inline-end: 6px; vertical-align: middle; background: var(--ag-social); }
.ag-key.ag-of-held_out_loss::before { background: var(--ag-entertainment); }
.ag-training-steps { display: flex; justify-content: space-between; font-size: 11px; padding-inline-end: 44px; }
.ag-training .ag-training-log { margin: 0; padding: 6px 10px; list-style: none; overflow: auto; border: 1px solid var(--ag-edge); border-radius: 8px; background: var(--ag-card); font: 11.5px/1.6 ui-monospace, monospace; white-space: pre-wrap; scrollbar-width: thin; }
.ag-training-shots .ag-training-top { gap: 6px; } .ag-training-shots .ag-training-top span { flex: 1; }
.ag-training .ag-icon { border: 0; border-radius: 8px; color: inherit; cursor: pointer; height: 26px; } .ag-training .ag-icon:disabled { opacity: .45; cursor: default; }
.ag-training-shots a { flex: 1; min-height: 0; display: block; border-radius: 8px; }
.ag-training-shots img { width: 100%; height: 100%; object-fit: contain; object-position: left top; display: block; border-radius: 8px; }
@container (max-width: 620px) { .ag-training-parts { flex: none; grid-template-columns: minmax(0, 1fr); grid-template-rows: none; grid-auto-rows: 190px; } .ag-training-top { flex-wrap: wrap; } }
@media (prefers-reduced-motion: reduce) { .ag *, .ag *::after { transition: none !important; } }
`;

/** Add the style to the page, once. */
export function addStyle() {
  if (document.getElementById("animegamer-style")) return;
  const style = document.createElement("style");
  style.id = "animegamer-style";
  style.textContent = SLOT_STYLE + STYLE;
  document.head.append(style);
}
