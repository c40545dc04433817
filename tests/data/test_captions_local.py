"""A vision model in this process: tiny ones of stock classes with random weights, opened from their folders."""

import json

import pytest
import torch
from captions_world import make_records

from animegamer_core.data.captions.models import LocalModel, LocalSettings
from animegamer_core.data.captions.pictures import frame_sheet
from animegamer_core.data.captions.replies import captioning_prompt
from animegamer_core.data.captions.run import caption_clips, open_captioner
from animegamer_core.endpoint import Question
from animegamer_core.game.life import STATS
from animegamer_core.media.video import read_clip

TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}"
)
SIDE = 28  # px of the pictures that the towers see

CAT = "<S>Cat</S><MD>run</MD><EV>day hill</EV><MA>fast</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
DOG = "<S>Dog</S><MD>sit</MD><EV>night hall</EV><MA>calmly</MA><SC>0</SC><ET>0</ET><ST>1</ST>"


def make_tokenizer():
    """The two replies as tokens, every other word unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", "<s>", "</s>", "<pad>", "<image>"]
    backend = Tokenizer(models.WordLevel(vocab={name: n for n, name in enumerate(names)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, additional_special_tokens=["<image>"], **ends)
    tokenizer.add_tokens([CAT, DOG])
    return tokenizer


def save_llava(folder):
    import transformers

    tokenizer = make_tokenizer()
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = transformers.CLIPVisionConfig(**size, image_size=SIDE, patch_size=14, projection_dim=16)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    text = transformers.LlamaConfig(**size, vocab_size=len(tokenizer), max_position_embeddings=8192, **ends)
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=4, vision_feature_layer=-1
    )
    crop = {"height": SIDE, "width": SIDE}
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=crop),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )
    torch.manual_seed(0)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)


def teach(model, lessons):
    """Train an opened model until it answers each question with its one token, then `</s>`."""
    vision_model, rows = model._model, []
    for question, token in lessons:
        inputs = model._inputs(question)
        ids_BL = torch.cat([inputs["input_ids"], torch.tensor([[token, 2]])], dim=1)
        labels_BL = ids_BL.clone()
        labels_BL[:, :-2] = -100
        rows.append({"input_ids": ids_BL, "labels": labels_BL, "pixel_values": inputs["pixel_values"]})
    optimizer = torch.optim.Adam(vision_model.parameters(), 1e-2)
    for _ in range(300):
        loss = sum(vision_model(**row, attention_mask=torch.ones_like(row["input_ids"])).loss for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.02:
            return
    raise AssertionError(f"not learned: {loss}")


def test_a_model_that_learned_two_colours_captions_clips_by_them(tmp_path):
    folder = tmp_path / "taught-llava"
    save_llava(folder)
    captioner = open_captioner("transformers", model=folder, device="cpu", max_tokens=4)
    records = make_records(tmp_path / "dataset", 4)
    sheets = [frame_sheet(read_clip(tmp_path / "dataset" / record.clip).frames, 8) for record in records]
    tokens = [captioner.model._processor.tokenizer.convert_tokens_to_ids(reply) for reply in (CAT, DOG)]
    lessons = [(Question(captioning_prompt(1, STATS), (sheets[n],)), tokens[n > 0]) for n in (0, 3)]
    teach(captioner.model, lessons)
    report = caption_clips(tmp_path / "dataset", [records[0], records[3]], captioner)
    cat, dog = report.records
    assert (cat.character, cat.motion, cat.background, cat.adverb) == (("cat",), "run", "day hill", "fast")
    assert (dog.character, [*dog.stats.values()][1:]) == (("dog",), [0, 1])
    assert "requests: 2, " in report.text and report.set_aside == ()


def test_code_in_a_models_folder_is_never_run(tmp_path):
    strange = tmp_path / "strange"
    save_llava(strange)
    config = json.loads((strange / "config.json").read_text())
    config["model_type"] = "strange"
    config["auto_map"] = {"AutoConfig": "code.Strange", "AutoModelForImageTextToText": "code.Strange"}
    (strange / "config.json").write_text(json.dumps(config))
    (strange / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Strange: pass\n")
    with pytest.raises(ValueError, match="no vision model that transformers can open"):
        LocalModel(LocalSettings(strange))
    assert not (tmp_path / "ran").exists()
